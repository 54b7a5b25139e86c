import Glibc
import WardSystem

/// The daemon's message to the command that started it, through a pipe. It is "ready" with the
/// mount point, or the exit code with the two lines of the error.
enum ReadyMessage {
    case ready(mountPoint: String)
    case failed(status: Int32, text: String)

    var bytes: [UInt8] {
        switch self {
        case .ready(let mountPoint): Array("ready\n\(mountPoint)".utf8)
        case .failed(let status, let text): Array("failed\n\(status)\n\(text)".utf8)
        }
    }

    /// Returns nil where the daemon ended without a message.
    init?(_ bytes: [UInt8]) {
        let text = String(decoding: bytes, as: UTF8.self)
        let parts = text.split(separator: "\n", maxSplits: 2, omittingEmptySubsequences: false)
        switch parts.first {
        case "ready" where parts.count >= 2:
            // A mount point may contain a newline.
            self = .ready(mountPoint: parts[1...].joined(separator: "\n"))
        case "failed":
            guard parts.count == 3, let status = Int32(parts[1]) else { return nil }
            self = .failed(status: status, text: String(parts[2]))
        default: return nil
        }
    }

    func send(to descriptor: Int32) {
        let bytes = bytes
        try? Syscall.writeAll(descriptor, bytes, bytes.count)
        Syscall.close(descriptor)
    }
}
