import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Serves the control socket of one volume: one thread and poll(2) for all clients.
///
/// Nothing that a client does or leaves undone delays another: messages, answers and the number of
/// clients are bounded, a client has one call under way at a time and is not read from meanwhile
/// (so answers come in order), each has one message dispatched before the next client's turn, and
/// one that does not read is dropped. Where the table is full, a client of the process that has
/// most connections makes room, the one whose last call is longest ago, unless it turns out to have
/// sent one. The last places are for locks: other calls are answered `Busy` there.
///
/// Where no descriptor is left for a client, one that was kept for that is given up for it, and the
/// handler is told: it is the last way by which somebody can lock. A helper of the daemon's has a
/// connection that was there from its start (`adopt`): it needs no accept(2), counts for no limit,
/// and gives its place to nobody.
public final class ControlServer: @unchecked Sendable {
    // Sendable: `clients`, `nextID`, `reserve` and `listener` belong to the server's thread; the
    // rest is constant or synchronised.
    static let maximumClients = 64
    /// Of those, clients that stream events.
    static let maximumMonitors = 32
    /// And trusted hosts.
    static let maximumHosts = 8
    /// With this many calls under way only `Lock` is still begun, so that a place is left for who
    /// wants to lock.
    static let maximumBusy = 56
    /// Values in one message, many more than any call has.
    static let maximumValues = 100
    /// Locked memory for receive buffers of more than the initial size, all clients together.
    static let maximumBufferBytes = 1 << 20
    /// New clients taken in before those who are there have their turn.
    static let acceptedInOneTurn = 64

    /// Where it began to listen. A presence may have moved it since.
    public let socketPath: String
    private let presence: ControlPresence?
    private let presenceKeeper: PresenceKeeper?
    private let version: String
    /// Methods of `org.ward.Volume`.
    private let methods: Set<String>
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
    /// A spare descriptor, of no use but to be closed where a client needs one; nil while a client
    /// has its place.
    private var reserve: OwnedDescriptor?
    /// Connections that wait for the server's thread to take them in.
    private let adopted = Mutex<[Int32]>([])

    /// Listens at `socketPath` (mode 0600), replacing what is there, and serves `methods` of
    /// `org.ward.Volume` from now on. The handler is not retained. `reserve`: kept for when no
    /// descriptor is left. The lower its number, the further `RLIMIT_NOFILE` can be lowered without
    /// keeping everybody out; nil: any.
    public convenience init(
        socketPath: String, version: String, methods: Set<String> = VolumeInterface.methods,
        handler: any ControlHandler, reserve: Int32? = nil
    ) throws(ControlError) {
        try self.init(
            socketPath, nil, version: version, methods: methods, handler: handler, reserve: reserve)
    }

    /// The same where `presence` says, and keeps it there.
    public convenience init(
        presence: ControlPresence, version: String,
        methods: Set<String> = VolumeInterface.methods, handler: any ControlHandler,
        reserve: Int32? = nil
    ) throws(ControlError) {
        try self.init(
            presence.socketPath, presence, version: version, methods: methods, handler: handler,
            reserve: reserve)
    }

    private init(
        _ socketPath: String, _ presence: ControlPresence?, version: String,
        methods: Set<String>, handler: any ControlHandler, reserve: Int32?
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

    /// Sends what is ready to be sent, closes all connections and removes the socket.
    public func stop() {
        guard !isStopping.exchange(true, ordering: .relaxed) else { return }
        outbox.signal()
        thread?.join()
        thread = nil
        if presence == nil { unlink(socketPath) }
        // Clients that were not accepted yet learn of the end by this alone.
        Syscall.close(listener)
    }

    deinit { stop() }

    /// Has socket and record looked after soon: once in a while, where inotify(7) can't be had or
    /// does not see it.
    public func lookAfterPresence() {
        presenceKeeper?.request()
        // The server's thread takes the time of the look.
        outbox.signal()
    }

    /// Takes in one end of a socketpair(2), whose other end a helper of this daemon inherits. It
    /// may call what any client may, and `HelperInterface`. Any thread.
    public func adopt(_ socket: consuming OwnedDescriptor) {
        let number = socket.release()
        adopted.withLock { $0.append(number) }
        outbox.signal()
    }

    // MARK: The server's thread

    /// Has a socket that is gone or was replaced made again, and listens there.
    private func keepPresence(_ changed: Bool) {
        guard let presence, let presenceKeeper else { return }
        if changed {
            presence.forgetChanges()
            presenceKeeper.request()
        }
        presenceKeeper.giveUpIfOverdue()
        guard let renewed = presenceKeeper.takeListener() else { return }
        // Clients that wait at the old one find the new one when it is asked again.
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
            // What is in a buffer already, poll(2) does not see.
            let isWaiting = clients.values.contains { $0.hasUnseenInput && $0.mayReceive }
            let timeout: Int32 =
                isWaiting
                ? 0 : isAcceptingPaused || presenceKeeper?.isLooking == true ? 100 : -1
            renewReserve()
            // Passcodes were moved through registers: not while this thread sleeps.
            ward_scrub_thread()
            let ready = polled.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: timeout)
            }
            isAcceptingPaused = false
            if ready == nil {
                // poll(2) takes no more descriptors than RLIMIT_NOFILE allows, which another
                // program can lower: then each is tried, and none of them blocks.
                for index in polled.indices { polled[index].revents = Int16(POLLIN) }
                usleep(10_000)
            }
            if polled[0].revents != 0 { outbox.clearSignal() }
            takeAdopted()
            for (index, id) in order.enumerated() { advance(id, polled[index + 2].revents) }
            if polled[1].revents != 0 { accept() }
            keepPresence(polled[polled.count - 1].revents != 0)
        }
        // Before clients learn of the end: then nothing is left of it.
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
        // A bounded number of turns: newcomers must not starve those who are there.
        for _ in 0..<ControlServer.acceptedInOneTurn {
            var number = Glibc.accept(listener, nil, nil)
            // accept(2) wants a descriptor before it looks whether anybody waits.
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
            // Whoever waited to be taken in has mostly sent its call by now.
            receive(nextID, connection)
        }
    }

    /// Nothing was left to take a client in with, accept(2).
    private static func isScarcity(_ number: Int32) -> Bool {
        [EMFILE, ENFILE, ENOMEM, ENOBUFS].contains(number)
    }

    private func isAnybodyWaiting() -> Bool {
        let reason = errno
        defer { errno = reason }
        var waiting = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
        return ward_poll(&waiting, 1, 0) > 0
    }

    /// Closes one descriptor, so that a client can be taken in: the reserve, or an idle client's,
    /// who has its place.
    private func freeReserve() {
        if reserve != nil {
            reserve = nil
        } else if let id = leastDeserving() {
            drop(id)
        }
    }

    /// Opens the reserve again where it was given up and there is a descriptor to be had.
    private func renewReserve() {
        if reserve == nil { reserve = try? OwnedDescriptor(opening: "/dev/null", O_RDONLY) }
    }

    /// False where all places are taken by clients with calls under way.
    private func makeRoom() -> Bool {
        while clients.values.count(where: { !$0.isOwn }) >= ControlServer.maximumClients {
            guard let id = leastDeserving(), let connection = clients[id] else { return false }
            // A call that was sent is served, however crowded it is.
            receive(id, connection)
            if clients[id]?.isBusy == false { drop(id) }
        }
        return true
    }

    /// Among idle clients, of the process with the most of all connections, the one whose last call
    /// is longest ago. What was sent and is no whole message yet does not count as activity.
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

    /// Moves one client on: answers out, messages in.
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
            // What is under way is finished, what was sent before hanging up is still done; nobody
            // reads events, though.
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

    /// Everybody has the initial size. For more than that, whoever holds most goes, be it this one;
    /// false then.
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

    /// Does what the next whole message asks; the one after it waits for the answer, and for
    /// everybody else's turn.
    private func dispatchMessage(_ id: UInt64, _ connection: ControlConnection) {
        let parsed = connection.input.takeMessage { bytes in
            try? JSONParser.parse(
                bytes, secretMembers: VolumeInterface.secretMembers,
                maximumValues: ControlServer.maximumValues)
        }
        connection.hasUnseenInput = parsed != nil && !connection.input.isEmpty
        guard let parsed else { return }
        // What is not JSON can't be answered: Varlink has no error for it.
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
            method: member, parameters: message["parameters"] ?? .object([]), peer: connection.peer,
            wantsMore: message["more"]?.boolValue ?? false,
            isOneway: message["oneway"]?.boolValue ?? false, client: id, outbox: outbox)
        let busy = clients.values.count { $0.isBusy }
        connection.isBusy = true
        if busy >= ControlServer.maximumBusy, member != "Lock", !connection.isOwn {
            call.fail(.busy(reason: "\(busy) calls are under way already"))
            return
        }
        switch interface {
        case StandardInterface.name: answerStandard(call)
        case VolumeInterface.name:
            guard VolumeInterface.methods.contains(member) else {
                call.fail(
                    StandardInterface.qualified("MethodNotFound"),
                    .object([("method", .string(method))]))
                return
            }
            guard methods.contains(member) else {
                call.fail(
                    StandardInterface.qualified("MethodNotImplemented"),
                    .object([("method", .string(method))]))
                return
            }
            guard admit(call, connection) else { return }
            if let handler {
                handler.handle(call)
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

    /// False where the call was answered: it goes on until the client hangs up, and can't.
    private func admit(_ call: ControlCall, _ connection: ControlConnection) -> Bool {
        let isHost = call.method == VolumeInterface.hostMethod
        guard isHost || VolumeInterface.lastingMethods.contains(call.method) else { return true }
        guard call.wantsMore else {
            call.fail(StandardInterface.qualified("ExpectedMore"))
            return false
        }
        if isHost {
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

    private func answerStandard(_ call: ControlCall) {
        switch call.method {
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
                .object([("method", .string(StandardInterface.qualified(call.method)))]))
        }
    }
}
