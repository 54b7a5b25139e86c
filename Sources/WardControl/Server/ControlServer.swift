import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Serves the control socket of one volume: one thread and poll(2) for all clients.
///
/// No client can delay another. Messages, answers and the number of clients are limited. A client
/// has one call under way at a time; the server reads no more from it meanwhile, so answers come in
/// order. Each client has one message dispatched before the next client's turn. A client that does
/// not read its answers is dropped.
///
/// Where the table is full, an idle client is dropped: of the process with the most connections,
/// the client with the oldest last call. If that client has just sent a call, the call is served
/// instead. The last places are for locks: other calls get `Busy` there.
///
/// Where no descriptor is left for a new client, the server closes a reserve descriptor and tells
/// the handler. The control socket is the last way to lock. A helper of the daemon has its
/// connection from the start (`adopt`). It needs no accept(2), counts for no limit and is never
/// dropped for a new client.
public final class ControlServer: @unchecked Sendable {
    // Sendable: `clients`, `nextID`, `reserve` and `listener` belong to the server's thread; the
    // rest is constant or synchronised.
    static let maximumClients = 64
    /// The most clients that stream events.
    static let maximumMonitors = 32
    /// The most trusted hosts.
    static let maximumHosts = 8
    /// The number of calls under way at which only `Lock` is still begun, so that a lock always
    /// finds a place.
    static let maximumBusy = 56
    /// The most values in one message; no call has nearly as many.
    static let maximumValues = 100
    /// Locked memory for receive buffers of more than the initial size, all clients together.
    static let maximumBufferBytes = 1 << 20
    /// The most new clients accepted before the other clients have their turn.
    static let acceptedInOneTurn = 64

    /// The first socket path. A presence may have moved the socket since.
    public let socketPath: String
    private let presence: ControlPresence?
    private let presenceKeeper: PresenceKeeper?
    private let version: String
    /// Methods of `org.ward.Volume`.
    private let methods: Set<ControlMethod>
    private weak let handler: (any ControlHandler)?
    private let outbox: Outbox
    /// Closed by `stop`.
    private var listener: Int32
    private let owner: UInt32
    private let isStopping = Atomic(false)
    private var thread: SystemThread?
    private var clients: [UInt64: ControlConnection] = [:]
    private var nextID: UInt64 = 0
    /// Set while no descriptor is left for another client.
    private var isAcceptingPaused = false
    /// A spare descriptor that is closed when a client needs one; nil while a client has its place.
    private var reserve: OwnedDescriptor?
    /// Connections that wait for the server's thread to take them in.
    private let adopted = Mutex<[Int32]>([])

    /// Listens at `socketPath` (mode 0600), replacing the file there, and serves `methods` of
    /// `org.ward.Volume` from now on. The handler is not retained. `reserve` is the spare
    /// descriptor; nil opens one. A low number helps: with it, clients can connect even at a lower
    /// `RLIMIT_NOFILE`.
    public convenience init(
        socketPath: String, version: String,
        methods: Set<ControlMethod> = Set(ControlMethod.allCases),
        handler: any ControlHandler, reserve: Int32? = nil
    ) throws(ControlError) {
        try self.init(
            socketPath, nil, version: version, methods: methods, handler: handler, reserve: reserve)
    }

    /// Listens where `presence` says, and keeps the socket there.
    public convenience init(
        presence: ControlPresence, version: String,
        methods: Set<ControlMethod> = Set(ControlMethod.allCases), handler: any ControlHandler,
        reserve: Int32? = nil
    ) throws(ControlError) {
        try self.init(
            presence.socketPath, presence, version: version, methods: methods, handler: handler,
            reserve: reserve)
    }

    private init(
        _ socketPath: String, _ presence: ControlPresence?, version: String,
        methods: Set<ControlMethod>, handler: any ControlHandler, reserve: Int32?
    ) throws(ControlError) {
        self.socketPath = socketPath
        self.presence = presence
        self.version = version
        self.methods = methods
        self.handler = handler
        owner = geteuid()
        do throws(Errno) {
            outbox = try Outbox()
        } catch {
            throw ControlError(.system(error), path: socketPath, "\(error)")
        }
        self.reserve =
            reserve.map { OwnedDescriptor(adopting: $0) }
            ?? (try? OwnedDescriptor(opening: "/dev/null", O_RDONLY))
        if let presence {
            listener = try presence.begin().release()
            presenceKeeper = PresenceKeeper(presence) { [outbox] in outbox.signal() }
        } else {
            listener = try ControlSocket.listen(at: socketPath).release()
            presenceKeeper = nil
        }
        thread = SystemThread.start("ward-control") { [unowned self] in serve() }
    }

    /// Sends the answers that are ready, closes all connections and removes the socket.
    public func stop() {
        guard !isStopping.exchange(true, ordering: .relaxed) else { return }
        outbox.signal()
        thread?.join()
        thread = nil
        if presence == nil { unlink(socketPath) }
        // Clients that were not accepted yet learn of the end only by this.
        Syscall.close(listener)
    }

    deinit { stop() }

    /// Has socket and record checked soon. Called at times, because inotify(7) may be missing or
    /// not see a change.
    public func lookAfterPresence() {
        presenceKeeper?.request()
        // Wakes the server's thread, which measures the time of the look.
        outbox.signal()
    }

    /// Takes one end of a socketpair(2), whose other end a helper of this daemon inherits. The
    /// helper may call all methods of clients, and `HelperInterface`. Any thread.
    public func adopt(_ socket: consuming OwnedDescriptor) {
        let number = socket.release()
        adopted.withLock { $0.append(number) }
        outbox.signal()
    }

    // MARK: The server's thread

    /// Has a lost or replaced socket made again, and listens there.
    private func keepPresence(_ changed: Bool) {
        guard let presence, let presenceKeeper else { return }
        if changed {
            presence.forgetChanges()
            presenceKeeper.request()
        }
        presenceKeeper.giveUpIfOverdue()
        guard let renewed = presenceKeeper.takeListener() else { return }
        // Clients that wait at the old socket will find the new one when they connect again.
        Syscall.close(listener)
        listener = renewed.release()
    }

    private func takeAdopted() {
        let numbers = adopted.withLock { adopted in
            defer { adopted = [] }
            return adopted
        }
        for number in numbers {
            let socket = OwnedDescriptor(adopting: number)
            _ = ward_fcntl_int(number, F_SETFL, O_NONBLOCK)
            let peer = PeerCredentials(pid: getpid(), uid: owner, gid: getegid())
            nextID += 1
            outbox.open(nextID)
            clients[nextID] = ControlConnection(socket: socket, peer: peer, isOwn: true)
        }
    }

    private func serve() {
        while !isStopping.load(ordering: .relaxed) {
            let order = Array(clients.keys)
            var polled = [
                pollfd(fd: outbox.wake, events: Int16(POLLIN), revents: 0),
                pollfd(
                    fd: isAcceptingPaused ? -1 : listener, events: Int16(POLLIN),
                    revents: 0),
            ]
            for id in order { polled.append(clients[id]!.pollRequest) }
            polled.append(
                pollfd(
                    fd: presence?.watchDescriptor ?? -1, events: Int16(POLLIN), revents: 0))
            // The bytes in our own buffers are not seen by poll(2).
            let isWaiting = clients.values.contains { $0.hasUnseenInput && $0.mayReceive }
            let timeout: Int32 =
                isWaiting
                ? 0 : isAcceptingPaused || presenceKeeper?.isLooking == true ? 100 : -1
            renewReserve()
            // Passcodes went through registers and stack: wipe them before this thread sleeps.
            ward_scrub_thread()
            let ready = polled.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: timeout)
            }
            isAcceptingPaused = false
            if ready == nil {
                // Another program lowered RLIMIT_NOFILE, and poll(2) takes no more descriptors than
                // that. So try every descriptor; all are non-blocking.
                for index in polled.indices { polled[index].revents = Int16(POLLIN) }
                usleep(10_000)
            }
            if polled[0].revents != 0 { outbox.clearSignal() }
            takeAdopted()
            for (index, id) in order.enumerated() { advance(id, polled[index + 2].revents) }
            if polled[1].revents != 0 { accept() }
            keepPresence(polled[polled.count - 1].revents != 0)
        }
        // Before the clients learn of the end, so that then no files are left.
        presenceKeeper?.end()
        takeAdopted()
        for (id, connection) in clients {
            connection.queue(outbox.take(id))
            _ = connection.send()
            outbox.close(id)
        }
        clients = [:]
    }

    private func accept() {
        // The limit keeps new clients from starving the others.
        for _ in 0..<ControlServer.acceptedInOneTurn {
            var number = Glibc.accept(listener, nil, nil)
            // At accept(2) the kernel wants a free descriptor before it looks for a waiting client.
            if number < 0, ControlServer.isScarcity(errno), isAnybodyWaiting() {
                handler?.cannotAccept(Errno(rawValue: errno))
                freeReserve()
                number = Glibc.accept(listener, nil, nil)
                if number < 0 { isAcceptingPaused = ControlServer.isScarcity(errno) }
            }
            if number < 0 { return }
            let socket = OwnedDescriptor(adopting: number)
            _ = ward_fcntl_int(number, F_SETFD, FD_CLOEXEC)
            _ = ward_fcntl_int(number, F_SETFL, O_NONBLOCK)
            guard let peer = try? ControlSocket.peer(of: number) else { continue }
            guard peer.uid == owner || peer.uid == 0 else {
                let refusal = JSONValue.object([
                    ("error", .string(StandardInterface.qualified("PermissionDenied"))),
                    ("parameters", .object([])),
                ])
                let bytes = refusal.bytes + [0]
                _ = Glibc.send(number, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
                continue
            }
            guard makeRoom() else { continue }
            nextID += 1
            outbox.open(nextID)
            let connection = ControlConnection(socket: socket, peer: peer)
            clients[nextID] = connection
            // A client that waited to be accepted has usually sent its call by now.
            receive(nextID, connection)
        }
    }

    /// Whether accept(2) failed because descriptors or memory ran out.
    private static func isScarcity(_ number: Int32) -> Bool {
        [EMFILE, ENFILE, ENOMEM, ENOBUFS].contains(number)
    }

    private func isAnybodyWaiting() -> Bool {
        let reason = errno
        defer { errno = reason }
        var waiting = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
        return ward_poll(&waiting, 1, 0) > 0
    }

    /// Closes one descriptor, so that a client can be accepted: the reserve, or that of an idle
    /// client, which is dropped.
    private func freeReserve() {
        if reserve != nil {
            reserve = nil
        } else if let id = leastDeserving() {
            drop(id)
        }
    }

    /// Opens the reserve again after it was given up, where a descriptor is free.
    private func renewReserve() {
        if reserve == nil { reserve = try? OwnedDescriptor(opening: "/dev/null", O_RDONLY) }
    }

    /// Makes a place for one client. False where calls are under way in all places.
    private func makeRoom() -> Bool {
        while clients.values.count(where: { !$0.isOwn }) >= ControlServer.maximumClients {
            guard let id = leastDeserving(), let connection = clients[id] else { return false }
            // A call that was sent already is served first.
            receive(id, connection)
            if clients[id]?.isBusy == false { drop(id) }
        }
        return true
    }

    /// The idle client to drop first: of the process with the most connections, the client with the
    /// oldest last call. An incomplete message does not count as activity.
    private func leastDeserving() -> UInt64? {
        var connectionsOf: [Int32: Int] = [:]
        for connection in clients.values { connectionsOf[connection.peer.pid, default: 0] += 1 }
        return clients.filter { !$0.value.isBusy && !$0.value.isOwn }.min { first, second in
            let one = connectionsOf[first.value.peer.pid] ?? 0
            let other = connectionsOf[second.value.peer.pid] ?? 0
            return one != other
                ? one > other : first.value.lastActivity < second.value.lastActivity
        }?.key
    }

    private func drop(_ id: UInt64) {
        clients[id] = nil
        outbox.close(id)
    }

    /// Sends one client's answers and takes its next message.
    private func advance(_ id: UInt64, _ events: Int16) {
        guard let connection = clients[id] else { return }
        let pending = outbox.take(id)
        connection.queue(pending)
        if pending.overflowed || connection.outputBytes > Outbox.maximumBytes || !connection.send()
        {
            drop(id)
            return
        }
        outbox.noteUnsent(connection.outputBytes, for: id)
        let hungUp = events & Int16(POLLHUP | POLLERR | POLLNVAL) != 0
        if hungUp, connection.isBusy {
            // The call under way is finished, and calls sent before the hang-up are still done.
            // Only a stream of events or a host's call ends now.
            if connection.isMonitor || connection.isHost {
                drop(id)
            } else {
                connection.hasHungUp = true
            }
            return
        }
        if !connection.mayReceive { return }
        if connection.hasUnseenInput {
            dispatchMessage(id, connection)
            return
        }
        if events & Int16(POLLIN) != 0 || hungUp || connection.hasHungUp { receive(id, connection) }
    }

    private func receive(_ id: UInt64, _ connection: ControlConnection) {
        guard connection.mayReceive, hasRoomForInput(of: connection) else { return }
        do throws(Errno) {
            if try connection.input.receive(from: connection.descriptor) == 0 {
                drop(id)
                return
            }
        } catch {
            if error.rawValue != EAGAIN { drop(id) }
            return
        }
        dispatchMessage(id, connection)
    }

    /// Whether the input buffer may grow. Every client may have the initial size. Beyond that, the
    /// client with the largest buffer is dropped; false where that is this client.
    private func hasRoomForInput(of connection: ControlConnection) -> Bool {
        while connection.input.isFull, let capacity = connection.input.nextCapacityBytes,
            capacity > ReceiveBuffer.initialBytes
        {
            let held = clients.values.reduce(0) { $0 + $1.input.grownBytes }
            if held - connection.input.grownBytes + capacity <= ControlServer.maximumBufferBytes {
                return true
            }
            let largest = clients.filter { !$0.value.isBusy && !$0.value.isOwn }.max {
                first, second in
                let (one, other) = (first.value.input.grownBytes, second.value.input.grownBytes)
                return one != other
                    ? one < other : first.value.lastActivity > second.value.lastActivity
            }
            guard let largest else { return false }
            drop(largest.key)
            if largest.value === connection { return false }
        }
        return true
    }

    /// Handles the next whole message. The message after it waits for the answer, and for the other
    /// clients' turns.
    private func dispatchMessage(_ id: UInt64, _ connection: ControlConnection) {
        let parsed = connection.input.takeMessage { bytes in
            try? JSONParser.parse(
                bytes, secretMembers: VolumeInterface.secretMembers,
                maximumValues: ControlServer.maximumValues)
        }
        connection.hasUnseenInput = parsed != nil && !connection.input.isEmpty
        guard let parsed else { return }
        // Varlink has no error for a message that is not JSON.
        guard let message = parsed, let method = message["method"]?.stringValue else {
            drop(id)
            return
        }
        connection.lastActivity = SystemClock.monotonic()
        dispatch(method, message, id, connection)
        connection.queue(outbox.take(id))
        if !connection.send() { return drop(id) }
        outbox.noteUnsent(connection.outputBytes, for: id)
    }

    private func dispatch(
        _ method: String, _ message: JSONValue, _ id: UInt64, _ connection: ControlConnection
    ) {
        let dot = method.lastIndex(of: ".") ?? method.startIndex
        let interface = String(method[..<dot])
        let member = String(method[dot...].dropFirst())
        let call = ControlCall(
            parameters: message["parameters"] ?? .object([]), peer: connection.peer,
            wantsMore: message["more"]?.boolValue ?? false,
            isOneway: message["oneway"]?.boolValue ?? false, client: id, outbox: outbox)
        let busy = clients.values.count { $0.isBusy }
        connection.isBusy = true
        if busy >= ControlServer.maximumBusy, member != ControlMethod.lock.rawValue,
            !connection.isOwn
        {
            call.fail(.busy(reason: "\(busy) calls are under way already"))
            return
        }
        switch interface {
        case StandardInterface.name: answerStandard(member, call)
        case VolumeInterface.name:
            guard let known = ControlMethod(rawValue: member) else {
                call.fail(
                    StandardInterface.qualified("MethodNotFound"),
                    .object([("method", .string(method))]))
                return
            }
            guard methods.contains(known) else {
                call.fail(
                    StandardInterface.qualified("MethodNotImplemented"),
                    .object([("method", .string(method))]))
                return
            }
            guard admit(known, call, connection) else { return }
            if let handler {
                handler.handle(known, call)
            } else {
                call.fail(.busy(reason: "the mount ends"))
            }
        case HelperInterface.name
        where connection.isOwn && HelperInterface.methods.contains(member):
            if let handler { handler.handleHelper(call) } else { call.reply() }
        default:
            call.fail(
                StandardInterface.qualified("InterfaceNotFound"),
                .object([("interface", .string(interface))]))
        }
    }

    /// Checks a call that lasts until the client hangs up. False where it was refused and answered.
    private func admit(
        _ method: ControlMethod, _ call: ControlCall, _ connection: ControlConnection
    ) -> Bool {
        guard method.isLasting else { return true }
        guard call.wantsMore else {
            call.fail(StandardInterface.qualified("ExpectedMore"))
            return false
        }
        if method == .trustConnect {
            let hosts = clients.values.count { $0.isHost }
            guard hosts < ControlServer.maximumHosts else {
                call.fail(.busy(reason: "\(hosts) trusted hosts are connected already"))
                return false
            }
            connection.isHost = true
        } else {
            let monitors = clients.values.count { $0.isMonitor }
            guard monitors < ControlServer.maximumMonitors else {
                call.fail(.busy(reason: "\(monitors) programs watch the events already"))
                return false
            }
            connection.isMonitor = true
        }
        return true
    }

    private func answerStandard(_ method: String, _ call: ControlCall) {
        switch method {
        case "GetInfo":
            call.reply(
                .object([
                    ("vendor", .string("ward")), ("product", .string("ward")),
                    ("version", .string(version)), ("url", .string("https://varlink.org")),
                    (
                        "interfaces",
                        .array([.string(StandardInterface.name), .string(VolumeInterface.name)])
                    ),
                ]))
        case "GetInterfaceDescription":
            switch call.parameters["interface"]?.stringValue {
            case nil: call.failInvalidParameter("interface")
            case StandardInterface.name:
                call.reply(.object([("description", .string(StandardInterface.description))]))
            case VolumeInterface.name:
                call.reply(.object([("description", .string(VolumeInterface.description))]))
            case .some(let other):
                call.fail(
                    StandardInterface.qualified("InterfaceNotFound"),
                    .object([("interface", .string(other))]))
            }
        default:
            call.fail(
                StandardInterface.qualified("MethodNotFound"),
                .object([("method", .string(StandardInterface.qualified(method)))]))
        }
    }
}
