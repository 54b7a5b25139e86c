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

    // MARK: Methods of org.ward.Volume

    /// Asks for the status (`Status` of the interface).
    public func status() throws(ControlError) -> VolumeStatus {
        let answer = try call(.status)
        guard let json = answer["status"], let status = VolumeStatus(json: json) else {
            throw violation("no status in the answer")
        }
        return status
    }

    /// Locks after the grace period. With `now` it locks at once, and returns when class A is
    /// closed; trusted hosts can keep it open. If `endingHosts`, their connections are ended first.
    /// The events show the `reason`. Returns the state.
    public func lock(
        now: Bool = false, reason: String? = nil, endingHosts: Bool = false
    ) throws(ControlError) -> String {
        let parameters = JSONValue.object(present: [
            ("now", now ? .bool(true) : nil), ("reason", reason.map { .string($0) }),
            ("endHosts", endingHosts ? .bool(true) : nil),
        ])
        return try state(call(.lock, parameters))
    }

    /// Waits for the answer to a `lock` that timed out and was the last call; the connection's
    /// time-out limits this wait, too. Returns the state.
    public func lateLock() throws(ControlError) -> String { try state(readAnswer().parameters) }

    /// Returns the state.
    public func unlock(passcode: borrowing SecretBytes) throws(ControlError) -> String {
        try state(call(.unlock, secrets: "passcode", passcode))
    }

    /// Returns the state.
    public func reboot() throws(ControlError) -> String { try state(call(.reboot)) }

    /// Sets the first passcode. Throws `passcodeAlreadySet` of `VolumeError`.
    public func setPasscode(_ passcode: borrowing SecretBytes) throws(ControlError) {
        _ = try call(.setPasscode, secrets: "passcode", passcode)
    }

    /// Returns the names of hosts that are not trusted any more.
    @discardableResult
    public func changePasscode(
        from current: borrowing SecretBytes, to passcode: borrowing SecretBytes
    ) throws(ControlError) -> [String] {
        let answer = try call(.changePasscode, secrets: "current", current, "passcode", passcode)
        return answer["hostsRemoved"]?.arrayValue?.compactMap(\.stringValue) ?? []
    }

    /// Returns the names of hosts that are not trusted any more.
    @discardableResult
    public func removePasscode(current: borrowing SecretBytes) throws(ControlError) -> [String] {
        let answer = try call(.removePasscode, secrets: "current", current)
        return answer["hostsRemoved"]?.arrayValue?.compactMap(\.stringValue) ?? []
    }

    /// Changes the settings that are not nil. `current` is needed where a passcode is set.
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
            _ = try call(.setPolicy, secrets: "current", current, beside: plain)
        case .none: _ = try call(.setPolicy, plain)
        }
    }

    /// Destroys the effaceable key of the volume `uuid` and ends its mount. Returns when the key is
    /// gone.
    public func erase(uuid: String, passcode: borrowing SecretBytes) throws(ControlError) {
        _ = try call(
            .erase, secrets: "passcode", passcode, beside: .object([("uuid", .string(uuid))]))
    }

    /// Announces an erase without the passcode: locks the volume at once. Returns the seconds until
    /// the key is destroyed; nil where it is gone already. Until then `cancelErase` stops it.
    public func announceErase(uuid: String) throws(ControlError) -> Double? {
        try call(.erase, .object([("uuid", .string(uuid))]))["eraseInSeconds"]?.doubleValue
    }

    /// Cancels an announced erase. Returns whether there was one.
    public func cancelErase() throws(ControlError) -> Bool {
        try call(.cancelErase)["cancelled"]?.boolValue ?? false
    }

    /// Makes the daemon read the list of recovery kits again.
    public func readRecovery() throws(ControlError) { _ = try call(.readRecovery) }

    /// Moves a manual clock. Returns the state after all timers that came due were handled.
    public func advance(seconds: Double) throws(ControlError) -> String {
        try state(call(.advance, .object([("seconds", .double(seconds))])))
    }

    /// Makes a volume with a manual clock run out of space, or gives the space back.
    public func setFull(_ isFull: Bool) throws(ControlError) {
        _ = try call(.setFull, .object([("full", .bool(isFull))]))
    }

    /// Returns when the daemon has agreed; `waitForEnd` returns when it has ended.
    public func unmount(force: Bool = false) throws(ControlError) {
        _ = try call(.unmount, force ? .object([("force", .bool(true))]) : .object([]))
    }

    /// Blocks until the daemon closes the connection: it does so when the mount has ended.
    public func waitForEnd() throws(ControlError) {
        do throws(ControlError) {
            while true { _ = try readMessage() }
        } catch {
            if error.code != .connectionLost { throw error }
        }
    }

    /// The processes that have files open: of all classes, or of the class with this letter.
    public func holders(protectionClass: String? = nil) throws(ControlError) -> HolderReport {
        let answer = try call(
            .holders,
            .object(present: [("protectionClass", protectionClass.map { .string($0) })]))
        guard let report = HolderReport(json: answer) else {
            throw violation("no holders in the answer")
        }
        return report
    }

    /// A message that `monitor` passes on.
    public enum Notice: Equatable, Sendable {
        /// The first message, where `status` was set.
        case status(VolumeStatus)
        case event(ControlEvent)
    }

    /// Passes on the last `last` events, then, with `follow`, each new one, until `body` returns
    /// false or the mount ends. The interface describes `signals`, `protectionClass` and `status`.
    /// Without `follow` the connection's time-out limits each wait.
    public func monitor(
        last: Int = 0, follow: Bool = true, signals: Bool = false, protectionClass: String? = nil,
        status: Bool = false, _ body: (Notice) -> Bool
    ) throws(ControlError) {
        if follow { try setTimeout(nil) }
        try begin(
            .monitor,
            .object(
                present: [
                    ("last", .int(Int64(last))), ("follow", follow ? nil : .bool(false)),
                    ("signals", signals ? .bool(true) : nil),
                    ("protectionClass", protectionClass.map { .string($0) }),
                    ("status", status ? .bool(true) : nil),
                ]))
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

    /// Begins a backup. Returns when everything written so far is durable. As long as this client
    /// lives, the daemon holds the epoch and delays changes of the keybag. The client can't be used
    /// for other calls.
    public func beginBackup() throws(ControlError) {
        // A slow backing store takes minutes for this.
        try setTimeout(.seconds(600))
        try begin(.backup)
        _ = try readAnswer()
    }

    /// Checks the volume; with `repair`, repairs it. Passes each answer of the daemon to `body`;
    /// the last one is the report.
    public func check(
        repair: Bool, _ body: (JSONValue) -> Void
    ) throws(ControlError) {
        // A page of a large file may take as long as the disk needs.
        try setTimeout(.seconds(600))
        try begin(.check, .object(present: [("repair", repair ? .bool(true) : nil)]))
        while true {
            let answer = try readAnswer()
            body(answer.parameters)
            if !answer.continues { return }
        }
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
    private func begin(
        _ method: ControlMethod, _ parameters: JSONValue = .object([])
    ) throws(ControlError) {
        try send(method.qualifiedName, parameters, more: true)
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
        _ method: ControlMethod, secrets name: String, _ secret: borrowing SecretBytes,
        beside plain: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        var message = try SecretMessage(
            method: method.qualifiedName, capacity: secret.count, plain: plain,
            path: socketPath)
        message.append(name, secret)
        try finish(&message)
        return try readAnswer().parameters
    }

    func call(
        _ method: ControlMethod, secrets firstName: String, _ first: borrowing SecretBytes,
        _ secondName: String, _ second: borrowing SecretBytes, beside plain: JSONValue = .object([])
    ) throws(ControlError) -> JSONValue {
        var message = try SecretMessage(
            method: method.qualifiedName, capacity: first.count + second.count,
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
