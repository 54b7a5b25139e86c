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
    // Sendable: `listener`, `clients` and `dispatcher` belong to the server's thread; the rest is
    // constant or synchronised.
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
    private let outbox: Outbox
    private let listener: ControlListener
    private let clients: ControlClients
    private let dispatcher: ControlDispatcher
    private let isStopping = Atomic(false)
    private var thread: SystemThread?
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
        do throws(Errno) {
            outbox = try Outbox()
        } catch {
            throw ControlError(.system(error), path: socketPath, "\(error)")
        }
        clients = ControlClients(outbox: outbox)
        dispatcher = ControlDispatcher(
            handler: handler, version: version, methods: methods, clients: clients, outbox: outbox)
        // The reserve comes before the socket, so that its number is low.
        let spare: OwnedDescriptor? =
            reserve.map { OwnedDescriptor(adopting: $0) }
            ?? (try? OwnedDescriptor(opening: "/dev/null", O_RDONLY))
        if let presence {
            listener = ControlListener(try presence.begin(), reserve: spare)
            presenceKeeper = PresenceKeeper(presence) { [outbox] in outbox.signal() }
        } else {
            listener = ControlListener(try ControlSocket.listen(at: socketPath), reserve: spare)
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
        listener.close()
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
        listener.replace(by: renewed)
    }

    private func takeAdopted() {
        let numbers = adopted.withLock { adopted in
            defer { adopted = [] }
            return adopted
        }
        for number in numbers {
            _ = clients.add(listener.connection(ofHelper: number))
        }
    }

    private func serve() {
        while !isStopping.load(ordering: .relaxed) {
            let order = clients.ids
            var polled = [
                pollfd(fd: outbox.wake, events: Int16(POLLIN), revents: 0),
                listener.pollRequest,
            ]
            for id in order { polled.append(clients[id]!.pollRequest) }
            polled.append(
                pollfd(
                    fd: presence?.watchDescriptor ?? -1, events: Int16(POLLIN), revents: 0))
            // The bytes in our own buffers are not seen by poll(2).
            let isWaiting = clients.haveUnseenInput
            let timeout: Int32 =
                isWaiting
                ? 0 : listener.isPaused || presenceKeeper?.isLooking == true ? 100 : -1
            listener.renewReserve()
            // Passcodes went through registers and stack: wipe them before this thread sleeps.
            ward_scrub_thread()
            let ready = polled.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: timeout)
            }
            listener.isPaused = false
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
        clients.end()
    }

    private func accept() {
        // The limit keeps new clients from starving the others.
        for _ in 0..<ControlServer.acceptedInOneTurn {
            guard let number = listener.accept(freeDescriptor: freeDescriptor) else { return }
            guard let connection = listener.connection(adopting: number), makeRoom() else {
                continue
            }
            let id = clients.add(connection)
            // A client that waited to be accepted has usually sent its call by now.
            receive(id, connection)
        }
    }

    /// Tells the handler, and closes one descriptor, so that a client can be accepted: the reserve,
    /// or that of an idle client, which is dropped.
    private func freeDescriptor(_ reason: Errno) {
        dispatcher.handler?.cannotAccept(reason)
        if !listener.closeReserve(), let id = clients.leastDeserving() { clients.drop(id) }
    }

    /// Makes a place for one client. False where calls are under way in all places.
    private func makeRoom() -> Bool {
        while clients.isFull {
            guard let id = clients.leastDeserving(), let connection = clients[id] else {
                return false
            }
            // A call that was sent already is served first.
            receive(id, connection)
            if clients[id]?.isBusy == false { clients.drop(id) }
        }
        return true
    }

    /// Sends one client's answers and takes its next message.
    private func advance(_ id: UInt64, _ events: Int16) {
        guard let connection = clients[id] else { return }
        let pending = outbox.take(id)
        connection.queue(pending)
        if pending.overflowed || connection.outputBytes > Outbox.maximumBytes || !connection.send()
        {
            clients.drop(id)
            return
        }
        outbox.noteUnsent(connection.outputBytes, for: id)
        let hungUp = events & Int16(POLLHUP | POLLERR | POLLNVAL) != 0
        if hungUp, connection.isBusy {
            // The call under way is finished, and calls sent before the hang-up are still done.
            // Only a stream of events or a host's call ends now.
            if connection.isMonitor || connection.isHost {
                clients.drop(id)
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
        guard connection.mayReceive, clients.hasRoomForInput(of: connection) else { return }
        do throws(Errno) {
            if try connection.input.receive(from: connection.descriptor) == 0 {
                clients.drop(id)
                return
            }
        } catch {
            if error.rawValue != EAGAIN { clients.drop(id) }
            return
        }
        dispatchMessage(id, connection)
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
            clients.drop(id)
            return
        }
        connection.lastActivity = SystemClock.monotonic()
        dispatcher.dispatch(method, message, id, connection)
        connection.queue(outbox.take(id))
        if !connection.send() { return clients.drop(id) }
        outbox.noteUnsent(connection.outputBytes, for: id)
    }
}
