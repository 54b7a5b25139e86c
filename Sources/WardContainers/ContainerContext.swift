import Glibc

/// Which container this program, or this part of it, runs in.
public enum ContainerContext {
    /// Set by `ward container run`: the container's root, absolute.
    public static let variable = "WARD_CONTAINER"

    /// For a test that plays an app: as the variable, for the current task and those it starts.
    @TaskLocal public static var assumedRoot: String?

    /// The root of the container, absolute, without a slash at its end; nil outside of any.
    public static var root: String? {
        if let assumedRoot { return trimmed(assumedRoot) }
        guard let value = getenv(variable) else { return nil }
        return trimmed(String(cString: value))
    }

    private static func trimmed(_ path: String) -> String? {
        var path = path[...]
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path.hasPrefix("/") && path != "/" ? String(path) : nil
    }

    /// The variables that make a program run in the container at `root`. Foundation on Linux takes the home directory from
    /// `CFFIXED_USER_HOME`, other programs from `HOME`.
    public static func environment(root: String) -> [(name: String, value: String)] {
        let support = root + "/" + ContainerLayout.applicationSupport
        return [
            (variable, root), ("HOME", root), ("CFFIXED_USER_HOME", root),
            ("TMPDIR", root + "/" + ContainerLayout.temporary),
            ("XDG_CACHE_HOME", root + "/" + ContainerLayout.caches),
            ("XDG_CONFIG_HOME", root + "/" + ContainerLayout.preferences),
            ("XDG_DATA_HOME", support), ("XDG_STATE_HOME", support),
        ]
    }
}
