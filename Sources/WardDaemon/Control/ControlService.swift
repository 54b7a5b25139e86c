import Glibc
import Synchronization
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardTrustedHosts
import WardVolume

/// Answers the control socket of a mounted volume.
///
/// Concurrency: `handle` runs on the server's thread and does not wait. Passcodes are stretched in
/// the queue `passcodes`, one after the other. A lock bypasses them and goes to the lock thread.
final class ControlService: ControlHandler {
    /// The most unlocks and passcode changes that wait in the queue.
    static let maximumWaiting = 16
    /// The longest reason for a lock that is kept, in scalars: one character may have any number of
    /// them.
    static let maximumReasonScalars = 200

    let options: MountOptions
    private let placement: Placement
    let store: KeybagStore
    let volume: Volume
    let keeper: LockKeeper
    let time: any TimeSource
    /// The backing store that can be made full, where the clock is manual.
    private let fillable: FillableStorage?
    let hub: EventHub
    private let passcodes = SerialQueue(
        "ward-passcode", limit: ControlService.maximumWaiting, starts: .atOnce)
    let ending = SerialQueue("ward-end", limit: 4, starts: .atOnce)
    private let searches = SerialQueue("ward-search", limit: 4, starts: .atOnce)
    private let holders: HolderSearch
    /// The work that waits for the file of trusted hosts.
    let trust = SerialQueue("ward-trust", limit: ControlService.maximumWaiting, starts: .atOnce)
    let connections: HostConnections
    let steadyTime: Mutex<SteadyTime>
    /// When the store was last told the time, seconds since 1970.
    let lastHostNote = Mutex(UInt64(0))
    /// Counts how often all hosts, or those of one record, were ended. A host that began to connect
    /// before the last change is refused.
    let hostEndings = Atomic(0)
    /// When a lock last ended all hosts, on the clock of grace periods.
    let hostsEnded = Mutex<Duration?>(nil)
    let backups: BackupHolds
    /// When an announced erase is due, on the clock of grace periods.
    let eraseDeadline = Mutex<Duration?>(nil)
    /// Signalled when `eraseDeadline` changes.
    let eraseWake = WakeWord()
    /// The process that locks the volume by itself, at sleep and similar events.
    private let sessionWatch = Mutex<SessionWatchProcess?>(nil)
    private let checks: CheckRunner
    /// Counts the requested locks and reboots. An unlock requested before one of them does not undo
    /// it.
    private let locks = Atomic(0)
    let mountLocks = MountLocks()
    /// A restart of the passcode delay, after a reboot, waits in `passcodes`.
    private let isRestartingDelay = Atomic(false)
    /// Adds the numbers of the kernel's requests.
    private let describeConnection: @Sendable (inout VolumeStatus) -> Void
    /// Unmounts. Returns the reason why it can't, or nil.
    let unmount: @Sendable (_ force: Bool) -> String?

    init(
        options: MountOptions, placement: Placement, store: KeybagStore, volume: Volume,
        keeper: LockKeeper, connections: HostConnections, maintenance: Maintenance,
        time: any TimeSource,
        fillable: FillableStorage?, hub: EventHub, deviceMinor: UInt32,
        describeConnection: @escaping @Sendable (inout VolumeStatus) -> Void,
        unmount: @escaping @Sendable (_ force: Bool) -> String?
    ) {
        self.options = options
        self.placement = placement
        self.store = store
        self.volume = volume
        self.keeper = keeper
        self.connections = connections
        self.time = time
        steadyTime = Mutex(
            SteadyTime(
                wall: SteadyTime.wallClock(), latest: store.latestTime, sinceBoot: time.now))
        self.fillable = fillable
        self.hub = hub
        self.describeConnection = describeConnection
        self.unmount = unmount
        holders = HolderSearch(volume: volume, deviceMinor: deviceMinor)
        checks = CheckRunner(volume: volume, hub: hub)
        backups = BackupHolds(volume: volume, maintenance: maintenance, time: time, hub: hub)
    }

    /// The grace period of the mount's command line, else the volume's present one.
    private var grace: Duration {
        let policy = store.policy.gracePeriod
        guard let asked = options.graceSeconds.map({ Duration.seconds($0) }) else { return policy }
        // The policy may have become shorter since the mount.
        return store.isForTests ? asked : min(asked, policy)
    }

    /// Lets `Status` report the events that lock the volume by themselves.
    func watch(_ process: SessionWatchProcess) { sessionWatch.withLock { $0 = process } }

    /// Ends a check under way. Called before the volume is closed.
    func stopChecks() { checks.stop() }

    /// Finishes the work begun. Passcodes that still wait are not tried.
    func stop() {
        trust.discardWaiting()
        trust.add(always: true) { [self] in noteHostUse(always: true) }
        trust.end()
        backups.stop()
        passcodes.discardWaiting()
        passcodes.add(always: true) { [self] in try? store.notePasscodeDelay() }
        passcodes.end()
        stopEraseTimer()
        ending.end()
        searches.end()
    }

    func handle(_ method: ControlMethod, _ call: ControlCall) {
        switch method {
        case .status: tellStatus(call)
        case .holders: findHolders(call)
        case .lock: lock(call)
        case .unlock: unlock(call)
        case .reboot: reboot(call)
        case .setPasscode: setPasscode(call)
        case .changePasscode: changePasscode(call)
        case .removePasscode: removePasscode(call)
        case .advance: advance(call)
        case .setFull: setFull(call)
        case .unmount: unmount(call)
        case .setPolicy: setPolicy(call)
        case .erase: erase(call)
        case .cancelErase: cancelErase(call)
        case .backup: backup(call)
        case .check: checks.begin(call)
        case .readRecovery: readRecovery(call)
        case .trustAdd: trustAdd(call)
        case .trustConnect: trustConnect(call)
        case .trustList: trustList(call)
        case .trustRemove: trustRemove(call)
        case .monitor: monitor(call)
        }
    }

    // MARK: Helpers

    func handleHelper(_ call: ControlCall) {
        let triggers = call.parameters["triggers"]?.arrayValue ?? []
        sessionWatch.withLock { $0 }?.take(triggers.compactMap(LockTrigger.init(json:)))
        call.reply()
    }

    func cannotAccept(_ reason: Errno) {
        lockNow("a client of the control socket could not be taken in: \(reason)")
    }

    /// Locks without a grace period and without trusted hosts, because the usual ways to lock may
    /// fail. Returns at once. Reports `why` where there is something to lock.
    func lockNow(_ why: String) {
        locks.add(1, ordering: .relaxed)
        hostEndings.add(1, ordering: .sequentiallyConsistent)
        hostsEnded.withLock { $0 = time.now }
        let state = keeper.status.machine.state
        switch state {
        case .unlocked, .locking, .lockedWithHost:
            hub.emit(
                ControlEvent(kind: .note, state: state.rawName, detail: "locked now: \(why)"))
            keeper.post(.lock(grace: .zero, endingHosts: true))
        case .noPasscode:
            hub.emit(ControlEvent(kind: .note, state: state.rawName, detail: why))
        // Also undoes an unlock under way.
        case .beforeFirstUnlock, .locked: keeper.post(.lock(grace: .zero, endingHosts: true))
        }
    }

    // MARK: Seeing

    /// The answer of `Status` now.
    func currentStatus() -> VolumeStatus { status(hub.counts) }

    /// `narrowed` is for a program in a sandbox.
    func tellStatus(_ call: ControlCall, narrowed: Bool = false) {
        let status = currentStatus()
        call.reply(.object([("status", (narrowed ? status.narrowed : status).json)]))
    }

    private func status(_ counts: EventJournal.Counts) -> VolumeStatus {
        let keeping = keeper.status
        let machine = keeping.machine
        let available = volume.available
        let openFiles = volume.openFileCounts()
        var status = VolumeStatus(
            uuid: store.parameters.uuidString, volume: placement.volumePath,
            mountpoint: placement.mountPoint, state: machine.state.rawName,
            since: keeping.since, passcodeSet: store.hasPasscode, graceSeconds: grace.inSeconds,
            graceRemainingSeconds: machine.graceRemaining(now: time.now)?.inSeconds,
            classes: ProtectionClass.allCases.map {
                ClassStatus(
                    letter: $0.letter, name: $0.name, available: available.contains($0),
                    openFiles: openFiles[$0] ?? 0)
            },
            pid: Int(getpid()), version: WardVersion.current, readOnly: options.readOnly,
            manualClock: options.manualClock)
        status.protectedDataAvailable = machine.isProtectedDataAvailable
        status.firstUnlockHappened = machine.firstUnlockHappened
        status.userInactiveRemainingSeconds = machine.userInactiveDeadline.map {
            max(.zero, $0 - time.now).inSeconds
        }
        if store.hasPasscode {
            status.triesLeft = store.attempts.triesLeft
            if case .tryLater(let wait) = store.verdict { status.retrySeconds = wait.inSeconds }
            status.eraseAfterTries = store.policy.erasesAfterTenWrongPasscodes
        }
        describeRecovery(in: &status, advanced: (time as? ManualTime)?.advanced ?? .zero)
        status.unsyncedBytes = volume.unsyncedBytes
        status.pendingStoreBytes = volume.pendingStoreBytes
        status.lost = counts.lost
        status.lostPaths = counts.lostPaths
        status.integrityFailures = counts.integrityFailures
        status.denied = counts.denied
        status.hosts = connections.all.map(\.name)
        status.locksAt = sessionWatch.withLock { $0?.triggers }
        status.eraseInSeconds = eraseDeadline.withLock { $0 }.map {
            max(.zero, $0 - time.now).inSeconds
        }
        describeConnection(&status)
        status.sequence = counts.sequence
        return status
    }

    /// `narrowed` is for a program in a sandbox: it gets only the lock state, from now on.
    func monitor(_ call: ControlCall, narrowed: Bool = false) {
        let parameters = call.parameters
        var request = EventHub.Request()
        request.last = parameters["last"]?.intValue ?? 0
        if narrowed, request.last != 0 { return call.failInvalidParameter("last") }
        request.isNarrowed = narrowed
        request.follow = parameters["follow"]?.boolValue ?? true
        request.signals = parameters["signals"]?.boolValue ?? false
        request.wantsStatus = parameters["status"]?.boolValue ?? false
        withProtectionClass(call) { wanted in
            request.protectionClass = wanted?.letter
            hub.subscribe(call, request) { counts in
                let status = status(counts)
                return (narrowed ? status.narrowed : status).json
            }
        }
    }

    private func findHolders(_ call: ControlCall) {
        withProtectionClass(call) { wanted in
            let holders = holders
            if !searches.add({ call.reply(holders.find(wanted).json) }) {
                call.fail(.busy(reason: "others look for holders already"))
            }
        }
    }

    /// Passes the parameter `protectionClass`, in any spelling, to `body`; nil where it is absent.
    /// Answers the call where the parameter is not a class.
    private func withProtectionClass(_ call: ControlCall, _ body: (ProtectionClass?) -> Void) {
        guard let value = call.parameters["protectionClass"], value != .null else {
            return body(nil)
        }
        guard let text = value.stringValue, let known = ProtectionClass(spelling: text) else {
            return call.failInvalidParameter("protectionClass")
        }
        body(known)
    }

    // MARK: Lock state

    private static func state(_ name: String) -> JSONValue { .object([("state", .string(name))]) }

    private func lock(_ call: ControlCall) {
        let now = call.parameters["now"]?.boolValue ?? false
        let endingHosts = call.parameters["endHosts"]?.boolValue ?? false
        if let reason = call.parameters["reason"]?.stringValue {
            let reason = String(
                String.UnicodeScalarView(
                    reason.unicodeScalars.prefix(ControlService.maximumReasonScalars)))
            hub.emit(
                ControlEvent(kind: .note, state: keeper.stateName, detail: "lock: \(reason)"))
        }
        lock(now: now, endingHosts: endingHosts) { call.reply(ControlService.state($0)) }
    }

    /// Begins a lock. Passes the state's name to `done` when the lock has ended, or its grace
    /// period has begun.
    func lock(now: Bool, endingHosts: Bool, done: @escaping @Sendable (String) -> Void) {
        locks.add(1, ordering: .relaxed)
        if endingHosts {
            hostEndings.add(1, ordering: .sequentiallyConsistent)
            hostsEnded.withLock { $0 = time.now }
        }
        keeper.post(.lock(grace: now ? .zero : grace, endingHosts: endingHosts), done: done)
    }

    private func reboot(_ call: ControlCall) {
        // In the queue, so after the passcodes being tried and before later ones. Never on the lock
        // thread: the store waits for the disk and for other processes.
        locks.add(1, ordering: .relaxed)
        hostEndings.add(1, ordering: .sequentiallyConsistent)
        // One waiting restart is enough, so a program that reboots in a loop fills no queue.
        if !isRestartingDelay.exchange(true, ordering: .relaxed) {
            passcodes.add(always: true) { [self] in
                isRestartingDelay.store(false, ordering: .relaxed)
                try? store.restartPasscodeDelay()
            }
        }
        keeper.post(.reboot, done: { call.reply(ControlService.state($0)) })
    }

    private func advance(_ call: ControlCall) {
        guard let manual = time as? ManualTime else {
            call.fail(.clockNotManual)
            return
        }
        guard let seconds = call.parameters["seconds"]?.doubleValue, seconds >= 0,
            seconds < 1_000_000_000
        else {
            call.failInvalidParameter("seconds")
            return
        }
        keeper.advance(manual, by: .seconds(seconds)) { [self] state in
            eraseWake.signal()
            call.reply(ControlService.state(state))
        }
    }

    private func setFull(_ call: ControlCall) {
        guard let fillable else { return call.fail(.clockNotManual) }
        guard let full = call.parameters["full"]?.boolValue else {
            return call.failInvalidParameter("full")
        }
        fillable.setFull(full)
        call.reply()
    }

    private func unmount(_ call: ControlCall) {
        let force = call.parameters["force"]?.boolValue ?? false
        let unmount = unmount
        let isTaken = ending.add {
            if let reason = unmount(force) {
                call.fail(.busy(reason: reason))
            } else {
                call.reply()
            }
        }
        if !isTaken { call.fail(.busy(reason: "the volume is being unmounted")) }
    }

    // MARK: Passcodes

    private func unlock(_ call: ControlCall) {
        let arrival = SystemClock.monotonic()
        let locksBefore = locks.load(ordering: .relaxed)
        withPasscodes(call, ["passcode"]) { [self] in
            guard store.hasPasscode else {
                call.fail(.refused(.noPasscodeSet))
                return
            }
            let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
            guard let passcode = passcode("passcode", of: call) else { return }
            do throws(KeybagError) {
                try store.openPasscodeSlot(passcode, into: keys)
            } catch {
                fail(call, "unlock", error)
                return
            }
            install(
                keys, andHandle: .unlocked, arrival: arrival,
                refuse: { [self] in
                    if locksBefore == locks.load(ordering: .relaxed) { return false }
                    keys.evict(.all)
                    call.fail(.busy(reason: "it was locked while the passcode was being tried"))
                    return true
                },
                done: { [self] state in
                    takeEraseBack("by an unlock")
                    call.reply(ControlService.state(state))
                })
        }
    }

    private func setPasscode(_ call: ControlCall) {
        withPasscodes(call, ["passcode"], changesKeybag: true) { [self] in
            guard let passcode = passcode("passcode", of: call) else { return }
            let hadPasscode = store.hasPasscode
            do throws(KeybagError) {
                try store.setPasscode(passcode)
            } catch {
                // The change may have taken effect, although its last step failed: then locks must
                // not be ignored any more.
                if store.hasPasscode != hadPasscode { keeper.post(.passcodeSet) }
                fail(call, "set the passcode of", error)
                return
            }
            keeper.post(.passcodeSet, done: { _ in call.reply() })
        }
    }

    private func changePasscode(_ call: ControlCall) {
        withPasscodes(call, ["current", "passcode"], changesKeybag: true) { [self] in
            guard let current = passcode("current", of: call),
                let passcode = passcode("passcode", of: call)
            else { return }
            let before = store.trustedHosts(at: 0).map(\.name)
            let removed: [String]
            do throws(KeybagError) {
                removed = try store.changePasscode(current, to: passcode)
            } catch {
                // The change may have taken effect, although its last step failed.
                if !before.isEmpty, store.trustedHosts(at: 0).isEmpty {
                    revokeHosts(before, "the passcode was changed") {}
                }
                fail(call, "change the passcode of", error)
                return
            }
            hub.emit(ControlEvent(kind: .passcodeChanged, state: keeper.stateName))
            revokeHosts(removed, "the passcode was changed") {
                call.reply(ControlService.hostsRemoved(removed))
            }
        }
    }

    private func removePasscode(_ call: ControlCall) {
        withPasscodes(call, ["current"], changesKeybag: true) { [self] in
            guard let current = passcode("current", of: call) else { return }
            let hadPasscode = store.hasPasscode
            let before = store.trustedHosts(at: 0).map(\.name)
            var failure: KeybagError?
            do throws(KeybagError) {
                try store.removePasscode(current)
            } catch {
                failure = error
            }
            if let failure, store.hasPasscode || !hadPasscode {
                fail(call, "remove the passcode of", failure)
                return
            }
            // The passcode is gone, even if the last step of the change failed: no unlock will
            // bring the keys.
            let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
            do throws(KeybagError) {
                _ = try store.openDeviceSlot(into: keys)
            } catch {
                fail(call, "remove the passcode of", error)
                return
            }
            install(
                keys, andHandle: .passcodeRemoved,
                done: { [self, failure] _ in
                    revokeHosts(before, "the passcode was removed") { [self] in
                        if let failure {
                            fail(call, "remove the passcode of", failure)
                        } else {
                            call.reply(ControlService.hostsRemoved(before))
                        }
                    }
                })
        }
    }

    private static func hostsRemoved(_ names: [String]) -> JSONValue {
        .object([("hostsRemoved", .array(names.map { .string($0) }))])
    }

    /// Runs `body` in the queue of passcodes, where the call has the secrets that it needs. A
    /// change of the keybag waits, outside of the queue, while a backup is made.
    func withPasscodes(
        _ call: ControlCall, _ names: [String], changesKeybag: Bool = false,
        _ body: @escaping @Sendable () -> Void
    ) {
        for name in names where call.parameters[name]?.secretValue == nil {
            call.failInvalidParameter(name)
            return
        }
        let add: @Sendable () -> Void = { [self] in
            if !passcodes.add(body) {
                call.fail(.busy(reason: "too many passcodes are being tried"))
            }
        }
        if changesKeybag { backups.whenFree(add) } else { add() }
    }

    func passcode(_ name: String, of call: ControlCall) -> Passcode? {
        guard let secret = call.parameters[name]?.secretValue,
            let bytes = try? secret.bytes.copy()
        else {
            call.fail(.failed(what: "read the passcode", why: "no memory could be locked for it"))
            return nil
        }
        do throws(PasscodeError) {
            return try Passcode(utf8: bytes)
        } catch {
            call.fail(.invalidPasscode(reason: error.description))
            return nil
        }
    }

    /// Moves keys into the volume's keyring on the lock thread, so that an eviction under way does
    /// not take them.
    private func install(
        _ keys: ClassKeyring, andHandle event: LockStateMachine.Event, arrival: Duration? = nil,
        refuse: (@Sendable () -> Bool)? = nil, done: @escaping @Sendable (String) -> Void
    ) {
        let keyring = volume.keyring
        keeper.post(
            event, arrival: arrival, refuse: refuse, prepare: { keys.move(to: keyring) },
            done: done)
    }

    func fail(_ call: ControlCall, _ what: String, _ error: KeybagError) {
        // The tenth wrong passcode just erased it, or another process did. No secret opens the
        // volume again, so no class stays open.
        if error.code == .erased { endErased() }
        if let known = VolumeError(error.code) { return call.fail(known) }
        hub.emit(ControlEvent(kind: .note, detail: "can't \(what) the volume: \(error)"))
        call.fail(.failed(what: "\(what) \(error.path)", why: error.reason))
    }
}
