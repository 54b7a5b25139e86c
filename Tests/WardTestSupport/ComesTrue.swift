import Foundation

/// Looks until `condition` holds, for `seconds` of the run's patience at most. Returns whether it
/// holds.
///
/// For conditions that no event tells of: another process's state, a file that appears. The pauses
/// grow from one millisecond to a tenth of a second, often enough for a loaded machine.
package func comesTrue(
    within seconds: Double = 20, _ condition: () throws -> Bool
) rethrows -> Bool {
    let end = Date(timeIntervalSinceNow: seconds * TestEnvironment.patience)
    var pause: Int32 = 1
    while try !condition() {
        if end.timeIntervalSinceNow < 0 { return try condition() }
        poll(nil, 0, pause)
        pause = min(pause * 2, 100)
    }
    return true
}

/// The same in an asynchronous function, whose thread is free during the pauses.
package nonisolated(nonsending) func eventually(
    within seconds: Double = 20, _ condition: () async throws -> Bool
) async rethrows -> Bool {
    let end = Date(timeIntervalSinceNow: seconds * TestEnvironment.patience)
    var pause = 1
    while try await !condition() {
        if end.timeIntervalSinceNow < 0 { return try await condition() }
        try? await Task.sleep(for: .milliseconds(pause))
        pause = min(pause * 2, 100)
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
