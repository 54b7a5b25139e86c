import Glibc
import Synchronization

/// Tells which container this program, or one task of it, runs in.
public enum ContainerContext {
    /// Set by `ward container run`: the container's root, absolute.
    public static let variable = "WARD_CONTAINER"

    /// Stands for the variable in a test that plays an app: in the current task and the tasks that
    /// it starts.
    @TaskLocal public static var assumedRoot: String?

    /// The simulated devices of this process.
    private struct Simulation {
        var devices = 0
        /// The containers that the whole process is in, with the number of `enter` calls for each.
        var entered: [String: Int] = [:]
    }

    private static let simulation = Mutex(Simulation())

    /// The container's root, absolute, without a slash at its end; nil outside of a container.
    public static var root: String? {
        if let assumedRoot { return trimmed(assumedRoot) }
        let entered = simulation.withLock { Array($0.entered.keys) }
        if !entered.isEmpty { return entered.count == 1 ? trimmed(entered[0]) : nil }
        guard let value = getenv(variable) else { return nil }
        return trimmed(String(cString: value))
    }

    /// Stands for the variable in a test that plays an app: in all threads of this process. Ends
    /// after as many calls of `leave`.
    public static func enter(_ root: String) {
        simulation.withLock { $0.entered[root, default: 0] += 1 }
    }

    /// Undoes one call of `enter`.
    public static func leave(_ root: String) {
        simulation.withLock { simulation in
            let left = simulation.entered[root, default: 1] - 1
            simulation.entered[root] = left > 0 ? left : nil
        }
    }

    /// Counts the simulated devices of this process: `change` is 1 for a device that was made, -1
    /// for one that was removed.
    public static func countDevices(_ change: Int) {
        simulation.withLock { $0.devices += change }
    }

    /// The reason why code outside of a container must not get the user's own directories; nil
    /// without a reason, or where another home was chosen. An app that plays on a simulated device
    /// would write into them, unprotected.
    public static var refusal: String? {
        guard root == nil else { return nil }
        let (devices, entered) = simulation.withLock { ($0.devices, $0.entered.count) }
        if entered > 1 { return "several containers are entered at once" }
        guard devices > 0, getenv("CFFIXED_USER_HOME") == nil else { return nil }
        return "a simulated device is in use, and no container is entered"
    }

    private static func trimmed(_ path: String) -> String? {
        var path = path[...]
        while path.count > 1, path.hasSuffix("/") { path.removeLast() }
        return path.hasPrefix("/") && path != "/" ? String(path) : nil
    }

    /// The variables that make a program run in the container at `root`. Foundation on Linux takes
    /// the home directory from `CFFIXED_USER_HOME`, other programs take it from `HOME`.
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
