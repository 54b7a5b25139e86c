import FoundationEssentials
import Glibc
import Synchronization
import WardSystem

/// Files and directories of this process, removed at its exit. After a crash they stay in the
/// directory that fuzz/run made, and fuzz/run removes that.
enum Scratch {
    private static let directories = Mutex<[String]>([])

    static func directory() -> String {
        guard
            let path = try? TemporaryDirectory.make(
                "ward-fuzz", in: TemporaryDirectory.parent(forSockets: true))
        else { fatalError("no temporary directory") }
        directories.withLock { directories in
            if directories.isEmpty { atexit { Scratch.removeAll() } }
            directories.append(path)
        }
        return path
    }

    private static func removeAll() {
        for path in directories.withLock({ $0 }) { remove(path) }
    }

    /// Removes a directory with everything in it.
    static func remove(_ path: String) {
        try? FileManager.default.removeItem(atPath: path)
    }
}
