import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Serves the control socket of one volume: one thread and poll(2) for all clients.
///
/// Nothing that a client does or leaves undone delays another: messages, answers and the number of clients are bounded,
/// a client has one call under way at a time and is not read from meanwhile (so answers come in order), one that does
/// not read is dropped, and where the table is full the client that has been idle longest makes room.
public final class ControlServer: @unchecked Sendable {
    // Sendable: `clients`, `nextID` and `listener` belong to the server's thread; the rest is constant or synchronised.
    static let maximumClients = 64
    /// Of those, clients that stream events.
    static let maximumMonitors = 32
    /// Locked memory for receive buffers, all clients together.
    static let maximumBufferBytes = 1 << 20

    public let socketPath: String
    private let version: String
    private weak let handler: (any ControlHandler)?
    private let outbox: Outbox
    /// Closed by `stop`.
    private let listener: Int32
    private let owner: UInt32
    private let isStopping = Atomic(false)
    private var thread: SystemThread?
    private var clients: [UInt64: ControlConnection] = [:]
    private var nextID: UInt64 = 0
    /// Set while no descriptor is left for another client.
    private var isAcceptingPaused = false

    /// Listens at `socketPath` (mode 0600), replacing what a dead daemon left there, and serves from now on. The handler
    /// is not retained.
    public init(
        socketPath: String, version: String, handler: any ControlHandler
    ) throws(ControlError) {
        self.socketPath = socketPath
        self.version = version
        self.handler = handler
        owner = geteuid()
        do throws(Errno) {
            outbox = try Outbox()
        } catch {
            throw ControlError(.system(error), path: socketPath, "\(error)")
        }
        listener = try ControlSocket.listen(at: socketPath).release()
        thread = SystemThread.start("ward-control") { [unowned self] in serve() }
    }

    /// Sends what is ready to be sent, closes all connections and removes the socket.
    public func stop() {
        guard !isStopping.exchange(true, ordering: .relaxed) else { return }
        outbox.signal()
        thread?.join()
        thread = nil
        unlink(socketPath)
        // Clients that were not accepted yet learn of the end by this alone.
        Syscall.close(listener)
    }

    deinit { stop() }

    // MARK: The server's thread

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
            let timeout: Int32 = isAcceptingPaused ? 100 : -1
            // Passcodes were moved through registers: not while this thread sleeps.
            ward_scrub_thread()
            let ready = polled.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: timeout)
            }
            isAcceptingPaused = false
            guard ready != nil else { continue }
            if polled[0].revents != 0 { outbox.clearSignal() }
            for (index, id) in order.enumerated() { advance(id, polled[index + 2].revents) }
            if polled[1].revents != 0 { accept() }
        }
        for (id, connection) in clients {
            connection.queue(outbox.take(id))
            _ = connection.send()
            outbox.close(id)
        }
        clients = [:]
    }

    private func accept() {
        // A bounded number of turns: newcomers must not starve those who are there.
        for _ in 0..<16 {
            let number = Glibc.accept(listener, nil, nil)
            if number < 0 {
                if errno == EMFILE || errno == ENFILE || errno == ENOMEM {
                    isAcceptingPaused = true
                }
                return
            }
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
            clients[nextID] = ControlConnection(socket: socket, peer: peer)
        }
    }

    /// False where all places are taken by clients with calls under way.
    private func makeRoom() -> Bool {
        if clients.count < ControlServer.maximumClients { return true }
        let idle = clients.filter { !$0.value.isBusy }
        guard let longest = idle.min(by: { $0.value.lastActivity < $1.value.lastActivity }) else {
            return false
        }
        drop(longest.key)
        return true
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
        let hungUp = events & Int16(POLLHUP | POLLERR | POLLNVAL) != 0
        if hungUp, connection.isBusy {
            // What is under way is finished, what was sent before hanging up is still done; nobody reads events, though.
            if connection.isMonitor { drop(id) } else { connection.hasHungUp = true }
            return
        }
        if !connection.mayReceive { return }
        dispatchMessages(id, connection)
        if clients[id] == nil || !connection.mayReceive { return }
        if events & Int16(POLLIN) != 0 || hungUp || connection.hasHungUp { receive(id, connection) }
    }

    private func receive(_ id: UInt64, _ connection: ControlConnection) {
        if connection.input.isFull, let capacity = connection.input.nextCapacityBytes,
            clients.values.reduce(0, { $0 + $1.input.capacityBytes })
                - connection.input.capacityBytes + capacity > ControlServer.maximumBufferBytes
        {
            drop(id)
            return
        }
        do throws(Errno) {
            if try connection.input.receive(from: connection.descriptor) == 0 {
                drop(id)
                return
            }
        } catch {
            if error.rawValue != EAGAIN { drop(id) }
            return
        }
        connection.lastActivity = SystemClock.monotonic()
        dispatchMessages(id, connection)
    }

    /// Does what whole messages ask until one has to be waited for.
    private func dispatchMessages(_ id: UInt64, _ connection: ControlConnection) {
        while clients[id] != nil, connection.mayReceive {
            let parsed = connection.input.takeMessage { bytes in
                try? JSONParser.parse(bytes, secretMembers: VolumeInterface.secretMembers)
            }
            guard let parsed else { return }
            // What is not JSON can't be answered: Varlink has no error for it.
            guard let message = parsed, let method = message["method"]?.stringValue else {
                drop(id)
                return
            }
            dispatch(method, message, id, connection)
            connection.queue(outbox.take(id))
            if !connection.send() { drop(id) }
        }
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
        connection.isBusy = true
        switch interface {
        case StandardInterface.name: answerStandard(call)
        case VolumeInterface.name:
            guard VolumeInterface.methods.contains(member) else {
                call.fail(
                    StandardInterface.qualified("MethodNotFound"),
                    .object([("method", .string(method))]))
                return
            }
            if member == "Monitor" {
                guard call.wantsMore else {
                    call.fail(StandardInterface.qualified("ExpectedMore"))
                    return
                }
                let monitors = clients.values.count { $0.isMonitor }
                guard monitors < ControlServer.maximumMonitors else {
                    call.fail(.busy(reason: "\(monitors) programs watch the events already"))
                    return
                }
                connection.isMonitor = true
            }
            if let handler {
                handler.handle(call)
            } else {
                call.fail(.busy(reason: "the mount ends"))
            }
        default:
            call.fail(
                StandardInterface.qualified("InterfaceNotFound"),
                .object([("interface", .string(interface))]))
        }
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
