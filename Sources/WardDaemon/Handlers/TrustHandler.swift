import Synchronization
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardTrustedHosts

/// Trusted hosts: `TrustAdd`, `TrustConnect`, `TrustList`, `TrustRemove`.
///
/// Concurrency: these methods wait for the state directory, so they have a queue of their own,
/// `ward-trust`. Only `TrustAdd`, which judges a passcode, uses the queue of passcodes. Classes are
/// opened and closed on the lock thread, which waits for none of this.
final class TrustHandler: Sendable {
    /// The most calls that wait in the queue.
    private static let maximumWaiting = 16
    /// For this long after a lock that ended all hosts, no host opens a class, unless the volume is
    /// unlocked. A host that reconnects all the time must not be back before the machine sleeps;
    /// the login manager gives that some seconds.
    private static let pause = Duration.seconds(30)

    private let store: KeybagStore
    private let keyring: ClassKeyring
    private let keeper: LockKeeper
    private let connections: HostConnections
    private let time: any TimeSource
    private let hub: EventHub
    private let endings: HostEndings
    private let passcodes: PasscodeQueue
    private let failures: FailureReporter
    private let use: HostUse
    /// The work that waits for the file of trusted hosts.
    private let queue = SerialQueue(
        "ward-trust", limit: TrustHandler.maximumWaiting, starts: .atOnce)

    init(
        _ mount: MountParts, endings: HostEndings, passcodes: PasscodeQueue,
        failures: FailureReporter
    ) {
        store = mount.store
        keyring = mount.volume.keyring
        keeper = mount.keeper
        connections = mount.connections
        time = mount.time
        hub = mount.hub
        self.endings = endings
        self.passcodes = passcodes
        self.failures = failures
        use = HostUse(mount, queue: queue)
    }

    /// Writes down the time and the connected hosts where that is due, in the queue.
    func noteUseLater() { use.noteLater() }

    /// Finishes the work begun, writes down the time, and ends the queue.
    func stop() {
        queue.discardWaiting()
        queue.add(always: true) { [use] in use.note(always: true) }
        queue.end()
    }

    func add(_ call: ControlCall) {
        let parameters = call.parameters
        guard let name = parameters["name"]?.stringValue, TrustedHostEntry.isName(name) else {
            return call.failInvalidParameter("name")
        }
        guard let hostID = hostID(of: call) else { return }
        passcodes.run(call, ["passcode", "secret"]) { [self] in
            // Checked before the passcode, so that a refused call costs no attempt.
            guard store.hasPasscode else { return call.fail(.refused(.noPasscodeSet)) }
            guard keeper.stateName == "unlocked" else { return call.fail(.locked) }
            use.note(always: false)
            let secret: SecretBytes? = hostSecret(of: call)
            guard let passcode = call.passcode("passcode") else { return }
            switch secret {
            case .none: call.failInvalidParameter("secret")
            case .some(let secret):
                do throws(KeybagError) {
                    try store.addTrustedHost(
                        hostID, name: name, secret: secret, passcode: passcode, at: use.now())
                } catch {
                    failures.answer(call, "trust a host of", error)
                    return
                }
                tell("add", name, "is trusted from now on")
                call.reply()
            }
        }
    }

    func connect(_ call: ControlCall) {
        guard let hostID = hostID(of: call) else { return }
        guard call.parameters["secret"]?.secretValue != nil else {
            return call.failInvalidParameter("secret")
        }
        let endingsBefore = endings.count
        let isTaken = queue.add { [self] in
            let opened: ClassKeyring
            let name: String
            switch open(call, hostID) {
            case .some(let (keys, host)): (opened, name) = (keys, host)
            case .none: return
            }
            connect(call, hostID, name, opened, endingsBefore)
        }
        if !isTaken { call.fail(.busy(reason: "too many hosts connect at once")) }
    }

    /// The keys in the host's slot, with the host's name; nil where the call was refused.
    private func open(_ call: ControlCall, _ hostID: [UInt8]) -> (ClassKeyring, String)? {
        guard store.hasPasscode else {
            call.fail(.refused(.noPasscodeSet))
            return nil
        }
        let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
        let secret: SecretBytes? = hostSecret(of: call)
        switch secret {
        case .none:
            call.failInvalidParameter("secret")
            return nil
        case .some(let secret):
            use.note(always: false)
            let now = use.now()
            let host = store.trustedHosts(at: now).first { $0.hostID == hostID }
            do throws(KeybagError) {
                try store.openTrustedHost(
                    hostID, secret: secret, keyring: keyring, into: keys, at: now)
            } catch {
                if error.code == .hostExpired {
                    tell("expire", host?.name ?? "", "was not used for 30 days")
                }
                failures.answer(call, "open a trusted host's slot of", error)
                return nil
            }
            return (keys, host?.name ?? "")
        }
    }

    private func connect(
        _ call: ControlCall, _ hostID: [UInt8], _ name: String, _ keys: ClassKeyring,
        _ endingsBefore: Int
    ) {
        // The call is kept for the connection, and must not keep the secret.
        let call = call.withoutParameters
        let connection = HostConnections.Connection(hostID: hostID, name: name, call: call)
        keeper.post(
            .hostConnected,
            refuse: { [self] in
                // On the lock thread, so the state can't change between this check and the next
                // steps.
                guard let refusal = refusal(of: connection, endingsBefore) else { return false }
                keys.evict(.all)
                call.fail(refusal)
                return true
            },
            prepare: { [self] in
                connection.counts.store(true, ordering: .sequentiallyConsistent)
                connections.add(connection)
                keys.move(to: keyring)
            },
            done: { [self] state in
                // A mount that was cut off takes no keys.
                guard connection.counts.load(ordering: .sequentiallyConsistent) else {
                    keys.evict(.all)
                    return call.fail(.busy(reason: "the mount ends"))
                }
                tell("connect", name, "holds A and B open while it is connected")
                call.reply(
                    .object([("name", .string(name)), ("state", .string(state))]), continues: true)
                use.note([hostID])
            })
        // A disconnect always comes after the event posted above.
        call.whenGone { [weak self] in self?.disconnect(connection, "its connection ended") }
    }

    /// The reason to refuse the host, although its slot was opened.
    private func refusal(
        of connection: HostConnections.Connection, _ endingsBefore: Int
    ) -> VolumeError? {
        switch keeper.stateName {
        case "noPasscode": return .refused(.noPasscodeSet)
        case "beforeFirstUnlock": return .refused(.beforeFirstUnlock)
        default: break
        }
        guard endings.count == endingsBefore,
            connection.call.isAlive
        else { return .busy(reason: "all hosts were ended while this one connected") }
        if keeper.stateName != "unlocked", let ended = endings.lastOfAll,
            time.now - ended < TrustHandler.pause
        {
            return .busy(reason: "it was locked for everybody less than half a minute ago")
        }
        return nil
    }

    /// Ends the connection, and runs the lock that it delayed. Calls `done` afterwards, also where
    /// the connection had ended before.
    private func disconnect(
        _ connection: HostConnections.Connection, _ why: String,
        done: (@Sendable () -> Void)? = nil
    ) {
        let isTaken = keeper.post(
            .hostDisconnected,
            refuse: { [self] in
                guard connection.counts.exchange(false, ordering: .sequentiallyConsistent) else {
                    done?()
                    return true
                }
                connections.remove(connection)
                tell("end", connection.name, why)
                return false
            },
            done: { [self] _ in
                connection.end(why)
                done?()
                use.note([connection.hostID])
            })
        if !isTaken { done?() }
    }

    func list(_ call: ControlCall) {
        let isTaken = queue.add { [self] in
            use.note(always: false)
            let hosts = store.trustedHosts(at: use.now()).map { host in
                HostStatus(
                    host, connected: connections.all(of: host.hostID).count)
            }
            call.reply(.object([("hosts", .array(hosts.map(\.json)))]))
        }
        if !isTaken { call.fail(.busy(reason: "the hosts are being changed")) }
    }

    func remove(_ call: ControlCall) {
        guard let name = call.parameters["name"]?.stringValue else {
            return call.failInvalidParameter("name")
        }
        let isTaken = queue.add(always: true) { [self] in
            let hostID: [UInt8]
            do throws(KeybagError) {
                hostID = try store.removeTrustedHost(named: name, at: use.now())
            } catch {
                failures.answer(call, "remove a trusted host of", error)
                return
            }
            // Refuses hosts that are connecting with the removed record now.
            endings.note()
            tell("remove", name, "is not trusted any more")
            let isTaken = keeper.perform { [self] in
                // On the lock thread no host is half connected.
                let connections = connections.all(of: hostID)
                guard let last = connections.last else {
                    call.reply()
                    return
                }
                for connection in connections.dropLast() {
                    disconnect(connection, "the host was removed")
                }
                disconnect(last, "the host was removed") { call.reply() }
            }
            if !isTaken { call.reply() }
        }
        if !isTaken { call.fail(.busy(reason: "the mount ends")) }
    }

    /// Ends the connections of all hosts, which lost their trust, and runs the lock that they
    /// delayed.
    func revokeHosts(_ names: [String], _ why: String, done: @escaping @Sendable () -> Void) {
        endings.note()
        for name in names { tell("remove", name, why) }
        if !keeper.post(.hostsRevoked, done: { _ in done() }) { done() }
    }

    private func tell(_ operation: String, _ name: String, _ detail: String) {
        hub.emit(
            ControlEvent(
                kind: .trustedHost, state: keeper.stateName, operation: operation,
                detail: "\(name): \(detail)"))
    }

    private func hostID(of call: ControlCall) -> [UInt8]? {
        guard let text = call.parameters["host"]?.stringValue, let hostID = HexSecret.bytes(text),
            hostID.count == HostRecord.idBytes
        else {
            call.failInvalidParameter("host")
            return nil
        }
        return hostID
    }

    private func hostSecret(of call: ControlCall) -> SecretBytes? {
        guard let text = call.parameters["secret"]?.secretValue,
            let secret = try? HexSecret.decode(text.bytes), secret.count == HostRecord.secretBytes
        else { return nil }
        return secret
    }
}

extension HostStatus {
    /// The status as clients get it.
    public init(_ host: TrustedHost, connected: Int) {
        func text(_ seconds: UInt64) -> String {
            // A time that a nonsense clock wrote down must not stop the daemon.
            Timestamp.text(.seconds(Int64(clamping: min(seconds, 253_402_300_799))))
        }
        self.init(
            name: host.name, made: text(host.made), lastUsed: text(host.lastUsed),
            expires: text(host.expires), expired: host.isExpired, connected: connected)
    }
}
