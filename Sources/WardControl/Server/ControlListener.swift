import CWardLinux
import Glibc
import WardSystem

/// Accepts the clients of a control socket, also where no descriptor is left for them.
///
/// Belongs to the server's thread; `close` is called after that thread's end.
final class ControlListener {
    /// The listening socket. Closed by `close`.
    private(set) var descriptor: Int32
    /// Set while no descriptor is left for another client.
    var isPaused = false
    private let owner = geteuid()
    /// A spare descriptor that is closed when a client needs one; nil while a client has its place.
    private var reserve: OwnedDescriptor?

    /// Takes a listening socket and a spare descriptor.
    init(_ socket: consuming OwnedDescriptor, reserve: consuming OwnedDescriptor?) {
        descriptor = socket.release()
        self.reserve = reserve
    }

    /// Closes the socket. Clients that were not accepted yet learn of the end only by this.
    func close() { Syscall.close(descriptor) }

    /// Listens at another socket from now on. Clients that wait at the old one will find the new
    /// one when they connect again.
    func replace(by socket: consuming OwnedDescriptor) {
        Syscall.close(descriptor)
        descriptor = socket.release()
    }

    var pollRequest: pollfd {
        pollfd(fd: isPaused ? -1 : descriptor, events: Int16(POLLIN), revents: 0)
    }

    /// Accepts the next client; nil where none waits. Where no descriptor is left, `freeDescriptor`
    /// has to close one, and the client is tried again.
    func accept(freeDescriptor: (Errno) -> Void) -> Int32? {
        var number = Glibc.accept(descriptor, nil, nil)
        // At accept(2) the kernel wants a free descriptor before it looks for a waiting client.
        if number < 0, ControlListener.isScarcity(errno), isClientWaiting() {
            freeDescriptor(Errno(rawValue: errno))
            number = Glibc.accept(descriptor, nil, nil)
            if number < 0 { isPaused = ControlListener.isScarcity(errno) }
        }
        return number < 0 ? nil : number
    }

    /// Makes the connection of an accepted client. Where the client is neither the owner's nor
    /// root's, it is refused, and the result is nil.
    func connection(adopting number: Int32) -> ControlConnection? {
        let socket = OwnedDescriptor(adopting: number)
        _ = ward_fcntl_int(number, F_SETFD, FD_CLOEXEC)
        _ = ward_fcntl_int(number, F_SETFL, O_NONBLOCK)
        guard let peer = try? ControlSocket.peer(of: number) else { return nil }
        guard peer.uid == owner || peer.uid == 0 else {
            let refusal = JSONValue.object([
                ("error", .string(StandardInterface.qualified("PermissionDenied"))),
                ("parameters", .object([])),
            ])
            let bytes = refusal.bytes + [0]
            _ = Glibc.send(number, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
            return nil
        }
        return ControlConnection(socket: socket, peer: peer)
    }

    /// Makes the connection of a helper of this daemon.
    func connection(ofHelper number: Int32) -> ControlConnection {
        let socket = OwnedDescriptor(adopting: number)
        _ = ward_fcntl_int(number, F_SETFL, O_NONBLOCK)
        let peer = PeerCredentials(pid: getpid(), uid: owner, gid: getegid())
        return ControlConnection(socket: socket, peer: peer, isOwn: true)
    }

    /// Closes the reserve, so that a client can be accepted. False where it is closed already.
    func closeReserve() -> Bool {
        guard reserve != nil else { return false }
        reserve = nil
        return true
    }

    /// Opens the reserve again after it was given up, where a descriptor is free.
    func renewReserve() {
        if reserve == nil { reserve = try? OwnedDescriptor(opening: "/dev/null", O_RDONLY) }
    }

    /// Whether accept(2) failed because descriptors or memory ran out.
    private static func isScarcity(_ number: Int32) -> Bool {
        [EMFILE, ENFILE, ENOMEM, ENOBUFS].contains(number)
    }

    private func isClientWaiting() -> Bool {
        let reason = errno
        defer { errno = reason }
        var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return ward_poll(&waiting, 1, 0) > 0
    }
}
