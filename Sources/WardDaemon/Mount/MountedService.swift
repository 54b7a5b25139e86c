import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// All parts of one mount: `init` puts them together, `finish` takes them apart.
final class MountedService: @unchecked Sendable {
    // Sendable: constant after `init`, except for the atomics.

    let info: MountedInfo
    private let options: MountOptions
    private let uuid: String
    private let log: LogWriter
    private let hub: EventHub
    private let volume: Volume
    private let connection: FUSEConnection
    private let maintenance: Maintenance
    private let keeper: LockKeeper
    private let service: ControlService
    private let server: ControlServer
    private let stateService: StateService
    /// The server of the state socket, for programs in a sandbox.
    private let stateServer: ControlServer
    private let watchdog: WatchdogProcess?
    private let sessionWatch: SessionWatchProcess
    private let processGuard: ProcessGuard
    private let alarm = Alarm()
    private let isEnding = Atomic(false)
    private let isCuttingOff = Atomic(false)
    private let isFinished = Atomic(false)
    private let served = WakeWord()

    init(
        _ options: MountOptions, _ placement: Placement, _ runtime: RuntimeDirectory
    ) throws(DaemonError) {
        self.options = options
        let time: any TimeSource = options.manualClock ? ManualTime() : SystemTime()
        let opened = try OpenedKeys.open(
            options, placement, manualClock: options.manualClock ? .manual { time.now } : nil)
        let store = opened.store
        uuid = store.parameters.uuidString
        log = try LogWriter(options, fallbackPath: store.stateDirectory.logPath)
        hub = EventHub(log: log)
        let fillable = options.manualClock ? FillableStorage() : nil
        for note in opened.notes { log.write(.warning, note) }
        do throws(VolumeOpenError) {
            volume = try Volume(
                backingPath: placement.volumePath, parameters: store.parameters,
                volumeKey: opened.volumeKey, keyring: opened.keyring, readOnly: options.readOnly,
                isCopy: options.acceptsOlderGeneration,
                kernelKeepsContent: !options.sharedStorage, observer: hub,
                storage: fillable ?? PosixStorage())
        } catch {
            log.stop()
            throw DaemonError(error, volumePath: options.volumePath)
        }
        do throws(FUSEError) {
            connection = try FUSEConnection.mount(options.forFUSE(placement))
        } catch {
            try? volume.close()
            log.stop()
            throw DaemonError(error)
        }
        volume.setNotifier(connection)
        let noteHelper: @Sendable (String) -> Void = { [log] in log.write(.warning, $0) }
        watchdog = WatchdogProcess(
            connection, volumePath: placement.volumePath, alarm: alarm, report: noteHelper)
        maintenance = Maintenance(volume: volume, log: log)
        let machine = LockStateMachine(
            hasPasscode: store.hasPasscode, userInactivePeriod: store.policy.userInactivePeriod,
            now: time.now)
        let connections = HostConnections()
        keeper = LockKeeper(
            volume: volume, connection: connection, machine: machine, time: time, hub: hub,
            maintenance: maintenance, connections: connections,
            flusher: PageFlusher(volume: volume, connection: connection))
        let ending = Ending()
        service = ControlService(
            options: options, placement: placement, store: store, volume: volume, keeper: keeper,
            connections: connections, maintenance: maintenance, time: time, fillable: fillable,
            hub: hub,
            deviceMinor: connection.connectionID,
            describeConnection: { [connection] status in
                status.transport = connection.transport.rawValue
                status.requests = connection.requestCounts.map {
                    RequestCount(name: $0.name, count: $0.count)
                }
            }
        ) { force in ending.owner?.end(force: force) }
        let record = MountedVolume(
            uuid: uuid, volume: placement.volumePath, mountpoint: connection.mountPoint,
            pid: Int(getpid()), device: connection.connectionID, socket: "")
        let presence = ControlPresence(
            in: runtime, record: record, changed: MountedService.tell(log, hub, keeper))
        // Its loss locks nothing, so it is not reported.
        let statePresence = ControlPresence(.state, in: runtime, record: record) { _ in }
        info = MountedInfo(
            uuid: uuid, volumePath: placement.volumePath, mountPoint: connection.mountPoint,
            socketPath: presence.socketPath, state: machine.state.rawName)
        stateService = StateService(service)
        volume.setVirtualAttributes { presence.socketPath }
        volume.answerMountAttributes { [service] (name, caller, isRoot) throws(Errno) in
            let endpoints = presence.endpoint.map {
                ControlEndpoints(control: $0, state: statePresence.endpoint)
            }
            return try service.mountAttribute(name, caller, isRoot: isRoot, endpoints)
        }
        do throws(ControlError) {
            server = try ControlServer(
                presence: presence, version: WardVersion.current, handler: service,
                reserve: MountedService.lowestDescriptor())
            stateServer = try ControlServer(
                presence: statePresence, version: WardVersion.current,
                methods: StateInterface.methods, handler: stateService)
        } catch {
            watchdog?.stop()
            try? connection.unmount(lazy: true)
            try? volume.close()
            log.stop()
            throw DaemonError(error)
        }
        maintenance.everyInterval { [weak service, weak server, weak stateServer] in
            service?.noteHostUseLater()
            server?.lookAfterPresence()
            stateServer?.lookAfterPresence()
        }
        // Last, because it is a client of the server.
        sessionWatch = SessionWatchProcess(
            server: server, mountPoint: connection.mountPoint,
            // Root's volumes belong to the machine, not to a session.
            wishes: SessionWatchProcess.Wishes(
                screen: options.locksWithScreen,
                logout: !options.ignoresLogout && geteuid() != 0),
            hub: hub, alarm: alarm, report: noteHelper)
        processGuard = ProcessGuard(
            [watchdog?.process, sessionWatch.keptProcess].compactMap { $0 }, alarm: alarm)
        service.watch(sessionWatch)
        alarm.connect { [weak service] why in service?.lockNow(why) }
        ending.owner = self
        hub.emit(
            ControlEvent(
                kind: .mounted, state: machine.state.rawName, path: connection.mountPoint,
                detail: "\(placement.volumePath), \(uuid)"))
        if watchdog == nil {
            log.write(.warning, "no watchdog could be started")
        }
        if let watchdog, !watchdog.canAbort {
            log.write(
                .warning,
                "/sys/fs/fuse/connections can't be used: if this process is killed, "
                    + (geteuid() == 0
                        ? "the mount is cut off by other means"
                        : "programs will find the bare mount point, and may write into it"))
        }
        if machine.state == .noPasscode { maintenance.mend() }
    }

    /// Reports changes of the control socket. Where another program has taken its place, or no
    /// command can find it, the volume is locked: a later lock might not get through.
    private static func tell(
        _ log: LogWriter, _ hub: EventHub, _ keeper: LockKeeper
    ) -> @Sendable (ControlPresence.Change) -> Void {
        { change in
            let (text, locks) =
                switch change {
                case .restored(let directory):
                    ("the control socket was gone: it is there again, in \(directory)", false)
                case .replaced(let isRestored):
                    (
                        "a program has put another socket in the place of the control socket: "
                            + (isRestored ? "it is in its place again" : "it stays there")
                            + ", and the volume is locked", true
                    )
                case .lost(let reason):
                    (
                        "the control socket is gone, and can't be made again (\(reason)): the "
                            + "volume is locked", true
                    )
                }
            log.write(.warning, text)
            hub.emit(ControlEvent(kind: .note, state: keeper.stateName, detail: text))
            if locks { keeper.post(.lock(grace: .zero, endingHosts: true)) }
        }
    }

    /// Makes standard input, which no code reads any more, the reserve descriptor. A lowered
    /// `RLIMIT_NOFILE` takes away number 0 last.
    private static func lowestDescriptor() -> Int32? {
        guard let null = try? OwnedDescriptor(opening: "/dev/null", O_RDONLY) else { return nil }
        return dup2(null.rawValue, 0) == 0 ? 0 : nil
    }

    /// Locks at once; no client of the daemon can prevent it. `why` is for the events.
    func lockNow(_ why: String) { service.lockNow(why) }

    /// The longest wait for the session watch at the mount: where the mount needs it, and where it
    /// does not.
    private static let watchPatience = (needed: Duration.seconds(10), usual: Duration.seconds(2))

    /// The error where the user asked for a lock with the screen and it can't be had. Waits for the
    /// first report of the session watch, so that the next `Status` knows what locks this volume.
    func missingScreenLock() -> DaemonError? {
        let hasReported = sessionWatch.awaitReport(
            options.locksWithScreen
                ? MountedService.watchPatience.needed : MountedService.watchPatience.usual)
        guard options.locksWithScreen else { return nil }
        let why = hasReported ? sessionWatch.screenFailure : "the login manager does not answer"
        guard let why else { return nil }
        return DaemonError(
            "mount", options.volumePath, "nothing can lock it with the screen: \(why)",
            hint:
                "mount it without --lock-with-screen, and lock it by ward lock from the screen locker",
            status: .unavailable)
    }

    /// Breaks the reference cycle between this object and the calls that end it.
    private final class Ending: @unchecked Sendable {
        // Sendable: written once, before the mount answers calls that use it.
        weak var owner: MountedService?
    }

    /// Serves requests; returns when the kernel has ended the connection.
    func serve() {
        connection.serve(volume, threads: FUSEConnection.usualThreads)
        if let error = connection.servingError {
            let (cause, remedy) =
                connection.transport == .ioUring
                ? ("FUSE over io_uring: the kernel says \(error)", "with --transport device")
                : ("requests can't be served: \(error)", "again")
            log.write(.error, "\(cause); the mount is cut off: unmount it, and mount it \(remedy)")
        }
        served.signal()
    }

    // MARK: Ending

    /// Unmounts, so that `serve` returns. Without `force`, fails where the mount is in use, and
    /// returns the reason.
    @discardableResult
    func end(force: Bool) -> String? {
        if !force {
            keeper.leaveMount()
            do throws(FUSEError) {
                try connection.unmount(lazy: false)
            } catch {
                return error.reason
            }
            cutOff(after: .seconds(2))
            return nil
        }
        guard !isEnding.exchange(true, ordering: .relaxed) else { return nil }
        hub.emit(ControlEvent(kind: .unmounting, state: keeper.stateName))
        keeper.leaveForGood()
        keeper.perform(.lock(grace: .zero, endingHosts: true))
        keeper.leaveMount()
        if (try? connection.unmount(lazy: false)) == nil { try? connection.unmount(lazy: true) }
        cutOff(after: .milliseconds(500))
        return nil
    }

    /// Ends the connection where it still stands after `grace`, although the mount is gone from the
    /// mount table. Then programs have files open, or another mount namespace (a container,
    /// unshare(1)) has a copy of the mount, which umount(2) neither sees nor removes. Pages that
    /// they mapped are written back first.
    private func cutOff(after grace: Duration) {
        guard !isCuttingOff.exchange(true, ordering: .relaxed) else { return }
        let body: @Sendable () -> Void = { [self] in
            if served.wait(timeout: grace) { return }
            hub.emit(
                ControlEvent(
                    kind: .note, state: keeper.stateName,
                    detail: "still in use after the unmount, here or in another mount namespace: "
                        + "cut off"))
            keeper.evictEverything()
            if connection.abort(), served.wait(timeout: .seconds(5)) { return }
            // Without a way to abort, the kernel ends the connection when the last descriptor of
            // the device closes.
            finish()
            _exit(0)
        }
        // Where no thread can be started, the caller waits.
        if let thread = try? SystemThread("ward-cut", body) { thread.detach() } else { body() }
    }

    /// Called after the last request: makes everything durable, wipes the keys, removes socket and
    /// record.
    func finish() {
        guard !isFinished.exchange(true, ordering: .relaxed) else {
            // Another thread runs this and ends the process.
            while true { pause() }
        }
        if !isEnding.load(ordering: .relaxed) {
            hub.emit(ControlEvent(kind: .unmounting, state: keeper.stateName))
        }
        // Wiped first, because the next steps may wait for a hanging store.
        volume.keyring.evict(.all)
        processGuard.stop()
        watchdog?.stop()
        sessionWatch.stop()
        maintenance.stop()
        service.stopChecks()
        keeper.stop()
        do throws(Errno) {
            try volume.close()
        } catch {
            log.write(.error, "the volume could not be closed cleanly: \(error)")
        }
        volume.keyring.evict(.all)
        // An aborted mount is still in the table, dead.
        try? connection.unmount(lazy: true)
        stopService()
        server.stop()
        stateServer.stop()
        log.write(.notice, "unmounted")
        log.stop()
    }
}

extension MountedService {
    /// Ends the queues of passcodes and calls. A passcode being tried may wait for the state
    /// directory: another process locks it, or it is on a hanging store. The keys are gone already,
    /// so the wait is short.
    private func stopService() {
        let service = service
        let done = WakeWord()
        guard
            let thread = try? SystemThread(
                "ward-stop",
                {
                    service.stop()
                    done.signal()
                })
        else { return service.stop() }
        thread.detach()
        if !done.wait(timeout: .seconds(5)) {
            log.write(.warning, "ended while a passcode was being tried")
        }
    }
}

/// The keybag, and the keys of the device slot.
private struct OpenedKeys: ~Copyable {
    let store: KeybagStore
    let keyring: ClassKeyring
    let volumeKey: SecretBytes
    /// Repairs made on opening.
    let notes: [String]

    /// Refuses options that keep protected files open longer than the policy: only the passcode may
    /// change that.
    private static func refuseWeaker(
        _ options: MountOptions, _ store: KeybagStore
    ) throws(DaemonError) {
        if options.manualClock {
            throw DaemonError(
                "mount", options.volumePath,
                "--manual-clock is for volumes of tests only: on this one no grace period would end",
                hint: "mount it without --manual-clock", status: .usage)
        }
        let longest = store.policy.gracePeriod.inSeconds
        if let grace = options.graceSeconds, grace > longest {
            throw DaemonError(
                "mount", options.volumePath,
                "--grace is \(grace) s, and the volume's policy allows \(longest) s at most",
                hint:
                    "ward policy set \(options.volumePath) --grace \(Int(grace.rounded(.up)))s, with the passcode",
                status: .usage)
        }
    }

    /// `manualClock` is the clock for delays after wrong passcodes; only a volume for tests has
    /// one.
    static func open(
        _ options: MountOptions, _ placement: Placement, manualClock: DeviceClock?
    ) throws(DaemonError) -> OpenedKeys {
        var store = try openStore(options, placement, .system)
        if options.isVolatile {
            // A power cut must not undo the count of wrong passcodes, or the change to a stronger
            // class (rows L5, I7).
            guard store.isForTests else {
                throw DaemonError(
                    "mount", options.volumePath, "--volatile is for volumes of tests only",
                    hint: "mount it without --volatile", status: .usage)
            }
            Durability.giveUp()
        }
        if !store.isForTests { try refuseWeaker(options, store) }
        var notes = store.notes
        if let manualClock {
            store = try openStore(options, placement, manualClock)
            notes += store.notes
        }
        let keyring = ClassKeyring(classBPublicKey: store.classBPublicKey)
        let volumeKey = try openDeviceSlot(of: store, into: keyring, options)
        return OpenedKeys(store: store, keyring: keyring, volumeKey: volumeKey, notes: notes)
    }

    private static func openStore(
        _ options: MountOptions, _ placement: Placement, _ clock: DeviceClock
    ) throws(DaemonError) -> KeybagStore {
        do throws(KeybagError) {
            let store = try KeybagStore(
                volumePath: placement.volumePath, stateRoot: placement.stateRoot, clock: clock,
                acceptsOlderGeneration: options.acceptsOlderGeneration)
            // The daemon's start is the boot of semantics.md.
            try store.restartPasscodeDelay()
            return store
        } catch {
            throw DaemonError(error, volumePath: options.volumePath)
        }
    }

    private static func openDeviceSlot(
        of store: KeybagStore, into keyring: ClassKeyring, _ options: MountOptions
    ) throws(DaemonError) -> SecretBytes {
        do throws(KeybagError) {
            return try store.openDeviceSlot(into: keyring)
        } catch {
            throw DaemonError(error, volumePath: options.volumePath)
        }
    }
}
