import CWardLinux
import Glibc
import WardSystem

/// Calls the daemon of one mounted volume. Every call blocks until its answer is there.
///
/// Only one thread at a time may use a client: a connection carries one call at a time.
public final class ControlClient {
    /// Longest answer taken, bytes.
    static let maximumAnswerBytes = 1 << 20

    public let socketPath: String
    let socket: OwnedDescriptor
    var received: [UInt8] = []
    /// The number of calls whose last answer was not read. More than one after a call that timed
    /// out. Answers have no number and come in the order of the calls.
    private var owed = 0

    /// Connects to the socket of a volume. `timeout` limits the wait for each answer; nil waits for
    /// ever. Throws `noSocket`, `refused` (the daemon died), and `permission`, also where the
    /// daemon is neither this user's nor root's.
    public convenience init(
        socketPath: String, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        try self.init(socketPath, try ControlSocket.connect(to: socketPath), timeout) { peer in
            peer.uid == geteuid() || peer.uid == 0
        }
    }

    /// Connects to the daemon of this mount and to no other program, even where another socket has
    /// the name. Throws the errors above, `replaced` and `mountOfAnother`.
    public convenience init(
        mount: VolumeMount, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        let (path, connected) = try ControlClient.connect(to: mount)
        // A passcode must not go to a process of a user who does not own the mount.
        try self.init(path, OwnedDescriptor(adopting: connected), timeout) { peer in
            DaemonOwner.isRight(peer: peer.uid, of: mount.owner)
        }
    }

    /// Tries for two seconds, because a daemon makes a lost socket again.
    private static func connect(
        to mount: VolumeMount
    ) throws(ControlError) -> (path: String, descriptor: Int32) {
        let deadline = SystemClock.monotonic() + .seconds(2)
        while true {
            do throws(ControlError) {
                let endpoints = try mount.endpoints()
                return (
                    endpoints.control.socketPath,
                    try ControlSocket.connect(to: endpoints).release()
                )
            } catch {
                let isPassing = error.code == .noSocket || error.code == .replaced
                guard isPassing, SystemClock.monotonic() < deadline else { throw error }
                usleep(20_000)
            }
        }
    }

    /// Connects to the daemon of the mount that holds `path`. Throws `notInMount` outside of ward
    /// volumes.
    public convenience init(
        volumeAt path: String, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        guard let mount = VolumeMount.covering(path) else {
            throw ControlError(.notInMount, path: path, "not inside a mounted ward volume")
        }
        try self.init(mount: mount, timeout: timeout)
    }

    /// Connects to the daemon that wrote a record: through its mount, where this mount namespace
    /// has it, else to the process that the record names.
    public convenience init(
        record: MountedVolume, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        if let mount = record.mount {
            try self.init(mount: mount, timeout: timeout)
        } else {
            let socket = try ControlSocket.connect(to: record.socket)
            try self.init(record.socket, socket, timeout) { peer in
                // The kernel gives 0 for a process of another PID namespace.
                peer.uid == geteuid() && (Int(peer.pid) == record.pid || peer.pid == 0)
            }
        }
    }

    private init(
        _ path: String, _ connected: consuming OwnedDescriptor, _ timeout: Duration?,
        isRight: (PeerCredentials) -> Bool
    ) throws(ControlError) {
        socketPath = path
        socket = connected
        try setTimeout(timeout)
        let peer: PeerCredentials
        do throws(Errno) {
            peer = try ControlSocket.peer(of: socket.rawValue)
        } catch {
            throw ControlError(.system(error), path: socketPath, "\(error)")
        }
        guard isRight(peer) else {
            throw ControlError(
                .permission, path: socketPath,
                "the daemon behind it is process \(peer.pid) of uid \(peer.uid)")
        }
    }

    /// Uses a connection that exists already: one end of a socketpair(2), whose other end the
    /// daemon has. `name` takes the path's place in errors.
    public init(
        adopting descriptor: consuming OwnedDescriptor, name: String, timeout: Duration?
    ) throws(ControlError) {
        socketPath = name
        socket = descriptor
        try setTimeout(timeout)
    }

    /// Whether the connection is still open at the daemon's end.
    public var isConnected: Bool {
        var byte: UInt8 = 0
        let count = recv(socket.rawValue, &byte, 1, Int32(MSG_PEEK | MSG_DONTWAIT))
        return count > 0 || (count < 0 && errno == EAGAIN)
    }

    /// Makes an object that ends this connection from another thread.
    public func interrupter() throws(ControlError) -> ControlInterrupter {
        let copy = ward_fcntl_int(socket.rawValue, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { throw failure(errno) }
        return ControlInterrupter(OwnedDescriptor(adopting: copy))
    }

    /// Calls any method by its full name; returns the answer's parameters.
    public func call(
        qualified method: String, _ parameters: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        try send(method, parameters, more: false)
        return try readAnswer().parameters
    }

    // MARK: Sending

    func call(
        _ method: ControlMethod, _ parameters: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        try call(qualified: method.qualifiedName, parameters)
    }

    /// Sends a call that takes several answers.
    func begin(
        _ method: ControlMethod, _ parameters: JSONValue = .object([])
    ) throws(ControlError) {
        try send(method.qualifiedName, parameters, more: true)
    }

    func state(_ answer: JSONValue) throws(ControlError) -> String {
        guard let state = answer["state"]?.stringValue else {
            throw violation("no state in the answer")
        }
        return state
    }

    private func send(_ method: String, _ parameters: JSONValue, more: Bool) throws(ControlError) {
        let message = JSONValue.object(
            present: [
                ("method", .string(method)), ("parameters", parameters),
                ("more", more ? .bool(true) : nil),
            ])
        let bytes = message.bytes + [0]
        try bytes.withUnsafeBufferPointer { (bytes) throws(ControlError) in
            try write(UnsafeRawBufferPointer(bytes))
        }
    }

    func write(_ bytes: UnsafeRawBufferPointer) throws(ControlError) {
        var done = 0
        while done < bytes.count {
            let sent = Glibc.send(
                socket.rawValue, bytes.baseAddress! + done, bytes.count - done,
                Int32(MSG_NOSIGNAL))
            if sent < 0 {
                if errno == EINTR { continue }
                throw failure(errno)
            }
            done += sent
        }
        owed += 1
    }

    // MARK: Receiving

    /// The answer to the last call. Late answers to earlier calls are skipped. Throws `timedOut`.
    func readAnswer() throws(ControlError) -> (parameters: JSONValue, continues: Bool) {
        var json = try readJSON()
        while owed > 1 {
            if json["continues"]?.boolValue != true { owed -= 1 }
            json = try readJSON()
        }
        if json["continues"]?.boolValue != true { owed = 0 }
        let parameters = json["parameters"] ?? .object([])
        if let name = json["error"]?.stringValue {
            throw ControlClient.error(name, parameters, path: socketPath)
        }
        return (parameters, json["continues"]?.boolValue ?? false)
    }

    private func readJSON() throws(ControlError) -> JSONValue {
        let message = try readMessage()
        do throws(JSONError) {
            return try JSONParser.parse(message)
        } catch {
            throw violation("not JSON: \(error)")
        }
    }

    private static func error(_ name: String, _ parameters: JSONValue, path: String) -> ControlError
    {
        if let error = VolumeError(qualifiedName: name, parameters: parameters) {
            return ControlError(.volume(error), path: path, "the daemon answered \(error.name)")
        }
        if name == StandardInterface.qualified("PermissionDenied") {
            return ControlError(.permission, path: path, "the volume belongs to another user")
        }
        return ControlError(
            .varlink(name: name, parameters: parameters), path: path, "the daemon answered \(name)")
    }

    func readMessage() throws(ControlError) -> [UInt8] {
        var scanned = 0
        while true {
            if let end = received[scanned...].firstIndex(of: 0) {
                let message = Array(received[0..<end])
                received.removeSubrange(0...end)
                return message
            }
            scanned = received.count
            if received.count > ControlClient.maximumAnswerBytes {
                throw violation("an endless answer")
            }
            var chunk = [UInt8](repeating: 0, count: 16384)
            let count = recv(socket.rawValue, &chunk, chunk.count, 0)
            if count == 0 {
                throw ControlError(.connectionLost, path: socketPath, "the daemon hung up")
            }
            if count < 0 {
                if errno == EINTR { continue }
                throw failure(errno)
            }
            received += chunk[0..<count]
        }
    }

    private func failure(_ number: Int32) -> ControlError {
        switch number {
        case EAGAIN: ControlError(.timedOut, path: socketPath, "the daemon does not answer")
        case EPIPE, ECONNRESET:
            ControlError(.connectionLost, path: socketPath, "the daemon hung up")
        default:
            ControlError(
                .system(Errno(rawValue: number)), path: socketPath, "\(Errno(rawValue: number))")
        }
    }

    func violation(_ reason: String) -> ControlError {
        ControlError(.protocolViolation, path: socketPath, reason)
    }

    /// Sets the limit of each wait for an answer and for room to send; nil waits for ever.
    public func setTimeout(_ timeout: Duration?) throws(ControlError) {
        var value = timeval()
        if let timeout {
            value.tv_sec = Int(timeout.components.seconds)
            value.tv_usec = Int(timeout.components.attoseconds / 1_000_000_000_000)
        }
        for option in [SO_RCVTIMEO, SO_SNDTIMEO]
        where setsockopt(
            socket.rawValue, SOL_SOCKET, option, &value, socklen_t(MemoryLayout<timeval>.size)) != 0
        {
            throw failure(errno)
        }
    }
}
