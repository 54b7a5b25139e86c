import Foundation

/// Looks until `condition` holds, for so long at most; whether it does.
package func comesTrue(
    within seconds: Double = 20, _ condition: () throws -> Bool
) rethrows -> Bool {
    let end = Date(timeIntervalSinceNow: seconds)
    while try !condition() {
        if end.timeIntervalSinceNow < 0 { return try condition() }
        // Ten times a second is often enough for a loaded machine.
        poll(nil, 0, 100)
    }
    return true
}

extension MountedVolume {
    /// The helper process of its daemon with this command; nil where there is none.
    package func helper(_ command: String) -> pid_t? {
        TestEnvironment.shared.processes().first {
            $0.contains(" \(command) ") && $0.contains(mountPoint)
        }.flatMap { pid_t($0.prefix { $0.isNumber }) }
    }
}
