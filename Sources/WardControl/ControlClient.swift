import CWardLinux
import Glibc
import WardSystem

/// Calls the daemon of one mounted volume; every call blocks until the answer is there.
///
/// Not for use by two threads at once: one call at a time crosses the connection.
public final class ControlClient {
    /// Longest answer taken, bytes.
    static let maximumAnswerBytes = 1 << 20

    public let socketPath: String
    let socket: OwnedDescriptor
    var received: [UInt8] = []
    /// Calls whose answer was not read to its end: more than one after a call that has timed out.
    /// Answers have no number, and come in the order of the calls.
    private var owed = 0

    /// Connects to a socket that is known to be a volume's. `timeout` bounds the wait for each
    /// answer (nil: for ever). Throws `noSocket`, `refused` (the daemon died), `permission`, also
    /// where the daemon is neither this user's nor root's.
    public convenience init(
        socketPath: String, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        try self.init(socketPath, try ControlSocket.connect(to: socketPath), timeout) { peer in
            peer.uid == geteuid() || peer.uid == 0
        }
    }

    /// Connects to the daemon of one mount: to no other's, nor to a program that has taken its
    /// socket's place. Throws as above, and `replaced`, `mountOfAnother`.
    public convenience init(
        mount: VolumeMount, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        let (path, connected) = try ControlClient.connect(to: mount)
        // A passcode must not go to a process of a user who does not own the mount.
        try self.init(path, OwnedDescriptor(adopting: connected), timeout) { peer in
            DaemonOwner.isRight(peer: peer.uid, of: mount.owner)
        }
    }

    /// A daemon makes a socket again that is gone: it is given two seconds.
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

    /// Connects to the daemon of the mount that `path` lies in. Throws `notInMount` off ward
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
    /// has it, else to the very process that the record names.
    public convenience init(
        record: MountedVolume, timeout: Duration? = .seconds(120)
    ) throws(ControlError) {
        if let mount = record.mount {
            try self.init(mount: mount, timeout: timeout)
        } else {
            let socket = try ControlSocket.connect(to: record.socket)
            try self.init(record.socket, socket, timeout) { peer in
                // 0: a process of another PID namespace.
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

    /// Goes by a connection that stands already: one end of a socketpair(2) whose other end the
    /// daemon has. `name` stands in errors for the path.
    public init(
        adopting descriptor: consuming OwnedDescriptor, name: String, timeout: Duration?
    ) throws(ControlError) {
        socketPath = name
        socket = descriptor
        try setTimeout(timeout)
    }

    // MARK: Methods of org.ward.Volume

    public func status() throws(ControlError) -> VolumeStatus {
        let answer = try call("Status")
        guard let json = answer["status"], let status = VolumeStatus(json: json) else {
            throw violation("no status in the answer")
        }
        return status
    }

    /// Locks after the grace period, or `now`: then it returns when class A is gone, unless trusted
    /// hosts hold it open. `endingHosts`: not even then. `reason`: why, for those who look at the
    /// events. Returns the state.
    public func lock(
        now: Bool = false, reason: String? = nil, endingHosts: Bool = false
    ) throws(ControlError) -> String {
        let parameters = JSONValue.object(present: [
            ("now", now ? .bool(true) : nil), ("reason", reason.map { .string($0) }),
            ("endHosts", endingHosts ? .bool(true) : nil),
        ])
        return try state(call("Lock", parameters))
    }

    /// Waits for the answer to a `lock` that has timed out and was the last call, for as long as
    /// the connection's time-out. Returns the state.
    public func lateLock() throws(ControlError) -> String { try state(readAnswer().parameters) }

    /// Returns the state.
    public func unlock(passcode: borrowing SecretBytes) throws(ControlError) -> String {
        try state(call("Unlock", secrets: "passcode", passcode))
    }

    /// Returns the state.
    public func reboot() throws(ControlError) -> String { try state(call("Reboot")) }

    public func setPasscode(_ passcode: borrowing SecretBytes) throws(ControlError) {
        _ = try call("SetPasscode", secrets: "passcode", passcode)
    }

    /// Returns the names of hosts that are not trusted any more.
    @discardableResult
    public func changePasscode(
        from current: borrowing SecretBytes, to passcode: borrowing SecretBytes
    ) throws(ControlError) -> [String] {
        let answer = try call("ChangePasscode", secrets: "current", current, "passcode", passcode)
        return answer["hostsRemoved"]?.arrayValue?.compactMap(\.stringValue) ?? []
    }

    /// Returns the names of hosts that are not trusted any more.
    @discardableResult
    public func removePasscode(current: borrowing SecretBytes) throws(ControlError) -> [String] {
        let answer = try call("RemovePasscode", secrets: "current", current)
        return answer["hostsRemoved"]?.arrayValue?.compactMap(\.stringValue) ?? []
    }

    /// What is nil stays as it is; the passcode where one is set.
    public func setPolicy(
        graceSeconds: Double?, userInactiveSeconds: Double?, eraseAfterTries: Bool?,
        current: borrowing SecretBytes?
    ) throws(ControlError) {
        let plain = JSONValue.object(present: [
            ("graceSeconds", graceSeconds.map { .double($0) }),
            ("userInactiveSeconds", userInactiveSeconds.map { .double($0) }),
            ("eraseAfterTries", eraseAfterTries.map { .bool($0) }),
        ])
        switch current {
        case .some(let current):
            _ = try call("SetPolicy", secrets: "current", current, beside: plain)
        case .none: _ = try call("SetPolicy", plain)
        }
    }

    /// Destroys the effaceable key of the volume `uuid` and ends its mount; returns when the key is
    /// gone.
    public func erase(uuid: String, passcode: borrowing SecretBytes) throws(ControlError) {
        _ = try call(
            "Erase", secrets: "passcode", passcode, beside: .object([("uuid", .string(uuid))]))
    }

    /// The same without the passcode: locks the volume, and returns the seconds after which the key
    /// goes, unless that is taken back; nil where it is gone already.
    public func announceErase(uuid: String) throws(ControlError) -> Double? {
        try call("Erase", .object([("uuid", .string(uuid))]))["eraseInSeconds"]?.doubleValue
    }

    /// Takes an announced erase back; whether there was one.
    public func cancelErase() throws(ControlError) -> Bool {
        try call("CancelErase")["cancelled"]?.boolValue ?? false
    }

    /// Has the daemon read again which recovery kits there are.
    public func readRecovery() throws(ControlError) { _ = try call("ReadRecovery") }

    /// Moves a manual clock; returns the state when everything that fell due is done.
    public func advance(seconds: Double) throws(ControlError) -> String {
        try state(call("Advance", .object([("seconds", .double(seconds))])))
    }

    /// Has a volume with a manual clock run out of space, or get it back.
    public func setFull(_ isFull: Bool) throws(ControlError) {
        _ = try call("SetFull", .object([("full", .bool(isFull))]))
    }

    /// Returns when the daemon has agreed; `waitForEnd` when it is gone.
    public func unmount(force: Bool = false) throws(ControlError) {
        _ = try call("Unmount", force ? .object([("force", .bool(true))]) : .object([]))
    }

    /// Blocks until the daemon closes the connection, which it does when the mount has ended.
    public func waitForEnd() throws(ControlError) {
        do throws(ControlError) {
            while true { _ = try readMessage() }
        } catch {
            if error.code != .connectionLost { throw error }
        }
    }

    /// Who has files open, of all classes or the one with this letter.
    public func holders(protectionClass: String? = nil) throws(ControlError) -> HolderReport {
        let answer = try call(
            "Holders",
            .object(present: [("protectionClass", protectionClass.map { .string($0) })]))
        guard let report = HolderReport(json: answer) else {
            throw violation("no holders in the answer")
        }
        return report
    }

    /// What `monitor` gives.
    public enum Notice: Equatable, Sendable {
        /// The first, where it was asked for.
        case status(VolumeStatus)
        case event(ControlEvent)
    }

    /// Gives the last `last` events, then, with `follow`, each as it happens, until `body` returns
    /// false or the mount ends. `signals`, `protectionClass` and `status` as the interface says.
    /// Without `follow` each wait is bounded by the connection's time-out.
    public func monitor(
        last: Int = 0, follow: Bool = true, signals: Bool = false, protectionClass: String? = nil,
        status: Bool = false, _ body: (Notice) -> Bool
    ) throws(ControlError) {
        if follow { try setTimeout(nil) }
        try send(
            VolumeInterface.qualified("Monitor"),
            .object(
                present: [
                    ("last", .int(Int64(last))), ("follow", follow ? nil : .bool(false)),
                    ("signals", signals ? .bool(true) : nil),
                    ("protectionClass", protectionClass.map { .string($0) }),
                    ("status", status ? .bool(true) : nil),
                ]), more: true)
        while true {
            let answer: (parameters: JSONValue, continues: Bool)
            do throws(ControlError) {
                answer = try readAnswer()
            } catch {
                if error.code == .connectionLost, follow { return }
                throw error
            }
            if let json = answer.parameters["event"] {
                guard let event = ControlEvent(json: json) else {
                    throw violation("not an event in the answer")
                }
                if !body(.event(event)) { return }
            } else if let json = answer.parameters["status"] {
                guard let status = VolumeStatus(json: json) else {
                    throw violation("not a status in the answer")
                }
                if !body(.status(status)) { return }
            }
            if !answer.continues { return }
        }
    }

    /// Begins a backup: returns when everything written so far is durable. What it holds is held as
    /// long as this client lives, which is of no other use from then on.
    public func beginBackup() throws(ControlError) {
        // A store may take its time.
        try setTimeout(.seconds(600))
        try send(VolumeInterface.qualified("Backup"), .object([]), more: true)
        _ = try readAnswer()
    }

    /// Checks the volume, with `repair` puts right what it finds. `body` gets what the daemon
    /// answers, the last time the report.
    public func check(
        repair: Bool, _ body: (JSONValue) -> Void
    ) throws(ControlError) {
        // A page of a large file may take as long as a disk does.
        try setTimeout(.seconds(600))
        try send(
            VolumeInterface.qualified("Check"),
            .object(present: [("repair", repair ? .bool(true) : nil)]), more: true)
        while true {
            let answer = try readAnswer()
            body(answer.parameters)
            if !answer.continues { return }
        }
    }

    /// Whether the daemon has not hung up.
    public var isConnected: Bool {
        var byte: UInt8 = 0
        let count = recv(socket.rawValue, &byte, 1, Int32(MSG_PEEK | MSG_DONTWAIT))
        return count > 0 || (count < 0 && errno == EAGAIN)
    }

    /// What ends this connection from another thread.
    public func interrupter() throws(ControlError) -> ControlInterrupter {
        let copy = ward_fcntl_int(socket.rawValue, F_DUPFD_CLOEXEC, 0)
        guard copy >= 0 else { throw failure(errno) }
        return ControlInterrupter(OwnedDescriptor(adopting: copy))
    }

    /// Calls any method by its full name; the answer's parameters.
    public func call(
        qualified method: String, _ parameters: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        try send(method, parameters, more: false)
        return try readAnswer().parameters
    }

    // MARK: Sending

    func call(
        _ method: String, _ parameters: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        try call(qualified: VolumeInterface.qualified(method), parameters)
    }

    private func state(_ answer: JSONValue) throws(ControlError) -> String {
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

    private func call(
        _ method: String, secrets name: String, _ secret: borrowing SecretBytes,
        beside plain: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        var message = try SecretMessage(
            method: VolumeInterface.qualified(method), capacity: secret.count, plain: plain,
            path: socketPath)
        message.append(name, secret)
        try finish(&message)
        return try readAnswer().parameters
    }

    func call(
        _ method: String, secrets firstName: String, _ first: borrowing SecretBytes,
        _ secondName: String, _ second: borrowing SecretBytes, beside plain: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        var message = try SecretMessage(
            method: VolumeInterface.qualified(method), capacity: first.count + second.count,
            plain: plain, path: socketPath)
        message.append(firstName, first)
        message.append(secondName, second)
        try finish(&message)
        return try readAnswer().parameters
    }

    func finish(_ message: inout SecretMessage) throws(ControlError) {
        message.finish()
        try message.withBytes { (bytes) throws(ControlError) in try write(bytes) }
    }

    private func write(_ bytes: UnsafeRawBufferPointer) throws(ControlError) {
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

    /// The answer to the last call; late ones to calls before are passed over. Throws `timedOut`.
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

    private func readMessage() throws(ControlError) -> [UInt8] {
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

    /// The time limit of each wait for an answer, and for room to send; nil: for ever.
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
