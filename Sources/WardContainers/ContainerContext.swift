import Glibc
import Synchronization

/// Which container this program, or this part of it, runs in.
public enum ContainerContext {
    /// Set by `ward container run`: the container's root, absolute.
    public static let variable = "WARD_CONTAINER"

    /// For a test that plays an app: as the variable, for the current task and those it starts.
    @TaskLocal public static var assumedRoot: String?

    /// The state that a process has of simulated devices.
    private struct Simulation {
        var devices = 0
        /// The containers that the process is in as a whole, each as often as it was entered.
        var entered: [String: Int] = [:]
    }

    private static let simulation = Mutex(Simulation())

    /// The root of the container, absolute, without a slash at its end; nil outside of any.
    public static var root: String? {
        if let assumedRoot { return trimmed(assumedRoot) }
        let entered = simulation.withLock { Array($0.entered.keys) }
        if !entered.isEmpty { return entered.count == 1 ? trimmed(entered[0]) : nil }
        guard let value = getenv(variable) else { return nil }
        return trimmed(String(cString: value))
    }

    /// For a test that plays an app: as the variable, for all threads of this process, until
    /// `leave` was called as often.
    public static func enter(_ root: String) {
        simulation.withLock { $0.entered[root, default: 0] += 1 }
    }

    public static func leave(_ root: String) {
        simulation.withLock { simulation in
            let left = simulation.entered[root, default: 1] - 1
            simulation.entered[root] = left > 0 ? left : nil
        }
    }

    /// This process has made a simulated device, or, by -1, has removed one.
    public static func countDevices(_ change: Int) {
        simulation.withLock { $0.devices += change }
    }

    /// Why whoever is in no container must not have the directories of the person who runs this
    /// process: an app that plays on a simulated device would write into them, unprotected. Nil
    /// where there is no such reason, or another home was chosen.
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
    /// the home directory from `CFFIXED_USER_HOME`, other programs from `HOME`.
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
