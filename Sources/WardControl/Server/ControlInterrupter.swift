import CWardLinux
import Glibc
import WardSystem

/// Ends a client's connection from any thread: a thread that waits for an answer gets
/// `connectionLost`.
///
/// It has a descriptor of its own: the client may be gone meanwhile, and the client's descriptor
/// number may be another file's.
public final class ControlInterrupter: Sendable {
    private let socket: OwnedDescriptor

    init(_ socket: consuming OwnedDescriptor) { self.socket = socket }

    /// Ends the connection. Any thread.
    public func interrupt() { _ = shutdown(socket.rawValue, Int32(SHUT_RDWR)) }
}
