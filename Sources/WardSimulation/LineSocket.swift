import CWardLinux
import Glibc
import WardControl
import WardSystem

/// One end of a socket pair that carries JSON objects, one per line.
public final class LineSocket {
    private let descriptor: OwnedDescriptor
    private var received: [UInt8] = []

    /// Takes ownership of the descriptor.
    public init(adopting descriptor: Int32) {
        self.descriptor = OwnedDescriptor(adopting: descriptor)
    }

    public var rawValue: Int32 { descriptor.rawValue }

    /// Limits the time that `receive` waits.
    func setTimeout(seconds: Int) {
        var limit = timeval(tv_sec: seconds, tv_usec: 0)
        setsockopt(
            rawValue, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    }

    /// Sends an object; throws `EPIPE` where the other end is closed.
    public func send(_ message: JSONValue) throws(Errno) {
        let bytes = message.bytes + [UInt8(ascii: "\n")]
        var done = 0
        while done < bytes.count {
            let sent = bytes.withUnsafeBytes {
                // MSG_NOSIGNAL: a closed peer gives EPIPE instead of SIGPIPE.
                Glibc.send(rawValue, $0.baseAddress! + done, $0.count - done, Int32(MSG_NOSIGNAL))
            }
            if sent < 0 {
                if errno == EINTR { continue }
                throw Errno(rawValue: errno)
            }
            done += sent
        }
    }

    /// Returns the next object, or nil where the other end is closed. Throws `EAGAIN` at the
    /// timeout, `EBADMSG` where a line is not JSON.
    public func receive() throws(Errno) -> JSONValue? {
        while true {
            if let end = received.firstIndex(of: UInt8(ascii: "\n")) {
                let line = Array(received[..<end])
                received.removeSubrange(...end)
                guard let message = try? JSONParser.parse(line) else {
                    throw Errno(rawValue: EBADMSG)
                }
                return message
            }
            var chunk = [UInt8](repeating: 0, count: 1 << 16)
            let count = recv(rawValue, &chunk, chunk.count, 0)
            if count == 0 { return nil }
            if count < 0 {
                if errno == EINTR { continue }
                if errno == ECONNRESET { return nil }
                throw Errno(rawValue: errno)
            }
            received += chunk[..<count]
        }
    }
}
