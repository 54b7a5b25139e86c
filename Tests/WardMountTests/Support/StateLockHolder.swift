import Foundation
import Testing

/// A program that holds the lock of a volume's state directory for a minute, as if the directory
/// did not answer.
final class StateLockHolder {
    private let child: Child
    private let lock: String

    /// Returns when the program has the lock.
    init(_ volume: MountedVolume) throws {
        lock = try volume.deviceDirectory() + "/lock"
        let output = try Child.pipe()
        defer { close(output.reading) }
        child = try Child(
            volume.user.prefix + ["flock", lock, "sh", "-c", "echo held; exec sleep 60"],
            environment: volume.environment, output: output.writing)
        close(output.writing)
        var byte: UInt8 = 0
        guard read(output.reading, &byte, 1) == 1 else {
            throw SupportError("flock does not get \(lock)")
        }
    }

    /// Whether a process waits for the lock: such lines of proc_locks(5) have an arrow.
    var isWaitedFor: Bool {
        var status = stat()
        guard stat(lock, &status) == 0 else { return false }
        let locks = TestEnvironment.contents(ofKernelFile: "/proc/locks")
        return locks.split(separator: "\n").contains {
            $0.contains("-> FLOCK") && $0.contains(":\(status.st_ino) ")
        }
    }

    func release() { child.kill() }
}
