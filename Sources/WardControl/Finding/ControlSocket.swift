import CWardLinux
import Glibc
import WardSystem

/// Unix stream sockets, unix(7).
enum ControlSocket {
    /// Longest wait for a place in the listener's queue, seconds.
    static let connectTimeoutSeconds = 10

    /// Connects; waits at most `connectTimeoutSeconds` while the listener's queue is full, then
    /// throws `timedOut`. Without `waits` it throws at once, which shows whether a process listens.
    /// Errors call the socket `name`, where `place` is another way to it.
    static func connect(
        to place: String, calledAs name: String? = nil, waits: Bool = true
    ) throws(ControlError) -> OwnedDescriptor {
        let path = name ?? place
        let socket = try make(path, flags: waits ? 0 : Int32(SOCK_NONBLOCK.rawValue))
        // At a Unix socket connect(2) waits as long as a send may, unix(7).
        var limit = timeval(tv_sec: connectTimeoutSeconds, tv_usec: 0)
        _ = setsockopt(
            socket.rawValue, SOL_SOCKET, SO_SNDTIMEO, &limit,
            socklen_t(MemoryLayout<timeval>.size))
        do throws(Errno) {
            try withAddress(of: place) { (address, length) throws(Errno) in
                _ = try Syscall.check { Glibc.connect(socket.rawValue, address, length) }
            }
        } catch {
            switch error.rawValue {
            case ENOENT, ENOTDIR:
                throw ControlError(.noSocket, path: path, "no control socket there")
            case ECONNREFUSED:
                throw ControlError(.refused, path: path, "the daemon behind it is gone")
            case EAGAIN:
                throw ControlError(
                    .timedOut, path: path, "too many programs wait for the daemon")
            case EACCES, EPERM:
                throw ControlError(.permission, path: path, "belongs to another user")
            default: throw ControlError(.system(error), path: path, "can't be reached: \(error)")
            }
        }
        return socket
    }

    /// Binds and listens, mode 0600. A file that has the name is replaced.
    static func listen(at path: String) throws(ControlError) -> OwnedDescriptor {
        let socket = try make(path, flags: Int32(SOCK_NONBLOCK.rawValue))
        do throws(Errno) {
            if unlink(path) != 0, errno == EISDIR || errno == EPERM { rmdir(path) }
            // The file gets the socket's own mode at bind(2), so it never has another mode.
            try Syscall.fchmod(socket.rawValue, 0o600)
            try withAddress(of: path) { (address, length) throws(Errno) in
                _ = try Syscall.check { bind(socket.rawValue, address, length) }
            }
            _ = try Syscall.check { Glibc.listen(socket.rawValue, 1024) }
        } catch {
            throw ControlError(.system(error), path: path, "can't listen there: \(error)")
        }
        return socket
    }

    /// The process at the other end, `SO_PEERCRED`: for a server the one that called connect(2),
    /// for a client the one that called listen(2).
    static func peer(of socket: Int32) throws(Errno) -> PeerCredentials {
        // A `struct ucred`, which glibc declares only under _GNU_SOURCE: pid, uid, gid.
        var credentials: (Int32, UInt32, UInt32) = (0, 0, 0)
        var length = socklen_t(MemoryLayout.size(ofValue: credentials))
        _ = try Syscall.check {
            getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length)
        }
        return PeerCredentials(pid: credentials.0, uid: credentials.1, gid: credentials.2)
    }

    private static func make(_ path: String, flags: Int32 = 0) throws(ControlError)
        -> OwnedDescriptor
    {
        let number = socket(
            AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | flags, 0)
        guard number >= 0 else {
            let reason = Errno(rawValue: errno)
            throw ControlError(.system(reason), path: path, "no socket: \(reason)")
        }
        return OwnedDescriptor(adopting: number)
    }

    /// Makes the `struct sockaddr_un` of `path`. For a path of more than 107 bytes it uses the
    /// descriptor of the path's directory.
    private static func withAddress(
        of path: String,
        _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Errno) -> Void
    ) throws(Errno) {
        if path.utf8.count <= 107 {
            try withShortAddress(of: path, body)
            return
        }
        guard let slash = path.lastIndex(of: "/") else { throw Errno(rawValue: ENAMETOOLONG) }
        let directory = try OwnedDescriptor(opening: String(path[..<slash]), O_RDONLY | O_DIRECTORY)
        let short = "/proc/self/fd/\(directory.rawValue)\(path[slash...])"
        if short.utf8.count > 107 { throw Errno(rawValue: ENAMETOOLONG) }
        try withShortAddress(of: short, body)
    }

    private static func withShortAddress(
        of path: String,
        _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Errno) -> Void
    ) throws(Errno) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        try withUnsafePointer(to: &address) { (address) throws(Errno) in
            try address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                (address) throws(Errno) in
                try body(address, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }
}

/// The process at the other end of a socket.
public struct PeerCredentials: Equatable, Sendable {
    public var pid: Int32
    public var uid: UInt32
    public var gid: UInt32
}
