import Glibc
import WardSystem

/// The daemon's socket: its path, and the identity of its file. While the daemon has it bound, no
/// program can make that inode again, even if another file takes the name.
public struct ControlEndpoint: Equatable, Sendable {
    public var socketPath: String
    /// `st_dev` and `st_ino` of the socket's file.
    public var device: UInt64
    public var inode: UInt64

    public init(socketPath: String, device: UInt64, inode: UInt64) {
        self.socketPath = socketPath
        self.device = device
        self.inode = inode
    }

    public var json: JSONValue {
        .object([
            ("socket", .string(socketPath)), ("device", .string("\(device)")),
            ("inode", .string("\(inode)")),
        ])
    }

    /// Nil where a member is missing or of another type.
    public init?(json: JSONValue) {
        guard let socketPath = json["socket"]?.stringValue,
            let device = json["device"]?.stringValue.flatMap({ UInt64($0) }),
            let inode = json["inode"]?.stringValue.flatMap({ UInt64($0) })
        else { return nil }
        self.init(socketPath: socketPath, device: device, inode: inode)
    }
}

/// The two sockets of a mount's daemon.
public struct ControlEndpoints: Equatable, Sendable {
    public var control: ControlEndpoint
    /// The socket that tells the lock state alone (`StateInterface`); in a sandbox it has the
    /// control socket's name. Nil where the daemon does not listen there now.
    public var state: ControlEndpoint?

    public init(control: ControlEndpoint, state: ControlEndpoint?) {
        self.control = control
        self.state = state
    }

    public var json: JSONValue {
        .object(present: [("control", control.json), ("state", state.map(\.json))])
    }

    /// Nil where the control socket is missing, or a member is of another type.
    public init?(json: JSONValue) {
        guard let control = json["control"].flatMap(ControlEndpoint.init(json:)) else { return nil }
        self.init(control: control, state: json["state"].flatMap(ControlEndpoint.init(json:)))
    }
}

extension ControlSocket {
    /// Names a file without opening it: `O_PATH` of open(2), which the Glibc module lacks.
    static let namingOnly: Int32 = 0o10000000

    /// Connects to the daemon's own socket under the control socket's name; in a sandbox this is
    /// the state socket. Throws `noSocket` where no file has the name, `replaced` where another
    /// file has it.
    static func connect(to endpoints: ControlEndpoints) throws(ControlError) -> OwnedDescriptor {
        let path = endpoints.control.socketPath
        let named = try NamedFile(path)
        let found = named.endpoint
        let isOwn = [endpoints.control, endpoints.state].contains { endpoint in
            endpoint?.device == found.device && endpoint?.inode == found.inode
        }
        guard isOwn else {
            throw ControlError(.replaced, path: path, "it is not the socket of the mount's daemon")
        }
        // Goes by the descriptor, because the name may lead to another file by now.
        return try connect(to: "/proc/self/fd/\(named.file.rawValue)", calledAs: path)
    }

    /// The endpoint of `path`, where this process listens there. Throws `replaced` where another
    /// process does.
    static func ownEndpoint(at path: String) throws(ControlError) -> ControlEndpoint {
        let named = try NamedFile(path)
        let socket = try connect(to: "/proc/self/fd/\(named.file.rawValue)", calledAs: path)
        let listener: PeerCredentials
        do throws(Errno) {
            listener = try peer(of: socket.rawValue)
        } catch {
            throw ControlError(.system(error), path: path, "\(error)")
        }
        guard listener.pid == getpid() else {
            throw ControlError(.replaced, path: path, "another process listens there")
        }
        return named.endpoint
    }
}

/// The file that has a name now, kept by an `O_PATH` descriptor.
struct NamedFile: ~Copyable {
    let file: OwnedDescriptor
    let endpoint: ControlEndpoint

    /// Throws `noSocket` where no file has that name.
    init(_ path: String) throws(ControlError) {
        let opened = try NamedFile.open(path)
        endpoint = opened.endpoint
        file = OwnedDescriptor(adopting: opened.number)
    }

    private static func open(
        _ path: String
    ) throws(ControlError) -> (number: Int32, endpoint: ControlEndpoint) {
        do throws(Errno) {
            let file = try OwnedDescriptor(opening: path, ControlSocket.namingOnly | O_NOFOLLOW)
            let status = try Syscall.fstat(file.rawValue)
            let endpoint = ControlEndpoint(
                socketPath: path, device: UInt64(status.st_dev), inode: UInt64(status.st_ino))
            return (file.release(), endpoint)
        } catch {
            switch error {
            case .noSuchFileOrDirectory, .notDirectory:
                throw ControlError(.noSocket, path: path, "no control socket there")
            case .permissionDenied, .notPermitted:
                throw ControlError(.permission, path: path, "belongs to another user")
            default: throw ControlError(.system(error), path: path, "\(error)")
            }
        }
    }
}
