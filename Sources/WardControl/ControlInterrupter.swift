import CWardLinux
import Glibc
import WardSystem

/// Ends a client's connection from any thread: whoever waits there for an answer finds it lost.
///
/// A descriptor of its own: the client may be gone meanwhile, and its number be another file's.
public final class ControlInterrupter: Sendable {
    private let socket: OwnedDescriptor

    init(_ socket: consuming OwnedDescriptor) { self.socket = socket }

    public func interrupt() { _ = shutdown(socket.rawValue, Int32(SHUT_RDWR)) }
}
