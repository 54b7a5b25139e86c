import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardKeys
import WardSystem
import WardVolume

/// All parts of one mount: `init` puts them together, `finish` takes them apart.
final class MountedService: @unchecked Sendable {
    // Sendable: constant after `init`, except for the atomics.

    let info: MountedInfo
    private let options: MountOptions
    private let log: LogWriter
    private let hub: EventHub
    private let volume: Volume
    private let connection: FUSEConnection
    private let maintenance: Maintenance
    private let keeper: LockKeeper
    private let servers: MountServers
    private let helpers: MountHelpers
    private let kernelCheck: KernelCheck
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
        log = try LogWriter(options, fallbackPath: store.stateDirectory.logPath)
        hub = EventHub(log: log)
        let fillable = options.manualClock ? FillableStorage() : nil
        for note in opened.notes { log.write(.warning, note) }
        do throws(DaemonError) {
            volume = try opened.makeVolume(options, placement, hub, fillable ?? PosixStorage())
            connection = try MountedService.mount(volume, options, placement)
        } catch {
            log.stop()
            throw error
        }
        let alarm = Alarm()
        let watchdog = WatchdogProcess(
            connection, volumePath: placement.volumePath, alarm: alarm,
            report: { [log] in log.write(.warning, $0) })
        maintenance = Maintenance(volume: volume, log: log)
        let machine = LockStateMachine(
            hasPasscode: store.hasPasscode, userInactivePeriod: store.policy.userInactivePeriod,
            now: time.now)
        let connections = HostConnections()
        keeper = LockKeeper(
            volume: volume, connection: connection, machine: machine, time: time, hub: hub,
            maintenance: maintenance, connections: connections,
            flusher: PageFlusher(volume: volume, connection: connection))
        kernelCheck = KernelCheck(volume, connection, keeper, hub, log)
        let ending = Ending()
        let service = MountedService.makeService(
            MountParts(
                options: options, placement: placement, store: store, volume: volume,
                keeper: keeper, connections: connections, maintenance: maintenance, time: time,
                fillable: fillable, hub: hub, kernelCheck: kernelCheck), connection, ending)
        do throws(ControlError) {
            servers = try MountServers(
                service, in: runtime,
                record: MountedVolume(
                    uuid: store.parameters.uuidString, volume: placement.volumePath,
                    mountpoint: connection.mountPoint, pid: Int(getpid()),
                    device: connection.connectionID, socket: ""),
                changed: MountedService.tell(log, hub, keeper))
        } catch {
            watchdog?.stop()
            try? connection.unmount(lazy: true)
            try? volume.close()
            log.stop()
            throw DaemonError(error)
        }
        info = MountedInfo(
            uuid: store.parameters.uuidString, volumePath: placement.volumePath,
            mountPoint: connection.mountPoint, socketPath: servers.socketPath,
            state: machine.state.rawName)
        // Last, because it is a client of the server.
        helpers = MountHelpers(
            watchdog, server: servers.control, mountPoint: connection.mountPoint, options, hub, log,
            alarm)
        connect(alarm, ending)
        tellMounted()
        if machine.state == .noPasscode { maintenance.mend() }
    }

    // MARK: Putting together

    /// Mounts, and lets the volume tell the kernel what changes. Closes the volume after a failure.
    private static func mount(
        _ volume: Volume, _ options: MountOptions, _ placement: Placement
    ) throws(DaemonError) -> FUSEConnection {
        do throws(FUSEError) {
            let connection = try FUSEConnection.mount(options.forFUSE(placement))
            volume.setNotifier(
                options.tests.keepsPages ? KernelKeepingPages(connection) : connection)
            return connection
        } catch {
            try? volume.close()
            throw DaemonError(error)
        }
    }

    /// Lets the parts reach each other that are made one after another.
    private func connect(_ alarm: Alarm, _ ending: Ending) {
        let service = servers.service
        servers.answer(volume)
        maintenance.everyInterval { [weak service, weak servers] in
            service?.noteHostUseLater()
            servers?.lookAfterPresence()
        }
        service.status.watch(helpers.sessionWatch)
        alarm.connect { [weak service] why in service?.lockNow(why) }
        ending.owner = self
    }

    private func tellMounted() {
        hub.emit(
            ControlEvent(
                kind: .mounted, state: info.state, path: info.mountPoint,
                detail: "\(info.volumePath), \(info.uuid)"))
        guard let watchdog = helpers.watchdog else {
            log.write(.warning, "no watchdog could be started")
            return
        }
        if !watchdog.canAbort {
            log.write(
                .warning,
                "/sys/fs/fuse/connections can't be used: if this process is killed, "
                    + (geteuid() == 0
                        ? "the mount is cut off by other means"
                        : "programs will find the bare mount point, and may write into it"))
        }
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

    /// Locks at once; no client of the daemon can prevent it. `why` is for the events.
    func lockNow(_ why: String) { servers.service.lockNow(why) }

    /// The longest wait for the session watch at the mount: where the mount needs it, and where it
    /// does not.
    private static let watchPatience = (needed: Duration.seconds(10), usual: Duration.seconds(2))

    /// The error where the user asked for a lock with the screen and it can't be had. Waits for the
    /// first report of the session watch, so that the next `Status` knows what locks this volume.
    func missingScreenLock() -> DaemonError? {
        let sessionWatch = helpers.sessionWatch
        let hasReported = sessionWatch.awaitReport(
            options.lock.followsScreen
                ? MountedService.watchPatience.needed : MountedService.watchPatience.usual)
        guard options.lock.followsScreen else { return nil }
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
        kernelCheck.begin()
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
            leaveMount()
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
        sealLast()
        keeper.perform(.lock(grace: .zero, endingHosts: true))
        leaveMount()
        if (try? connection.unmount(lazy: false)) == nil { try? connection.unmount(lazy: true) }
        cutOff(after: .milliseconds(500))
        return nil
    }

    /// Seals what was made before the first unlock and has no seal yet: the notes end with the
    /// mount.
    private func sealLast() {
        if volume.hasUnsealedChanges { maintenance.seal(within: .seconds(5)) }
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
        sealLast()
        // Wiped first, because the next steps may wait for a hanging store.
        volume.keyring.evict(.all)
        helpers.stop()
        kernelCheck.interrupt()
        maintenance.stop()
        servers.service.stopChecks()
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
        servers.stop()
        log.write(.notice, "unmounted")
        log.stop()
    }
}

extension MountedService {
    private static func makeService(
        _ parts: MountParts, _ connection: FUSEConnection, _ ending: Ending
    ) -> ControlService {
        ControlService(
            parts, deviceMinor: connection.connectionID,
            describeConnection: { [connection] status in
                status.transport = connection.transport.rawValue
                status.requests = connection.requestCounts.map {
                    RequestCount(name: $0.name, count: $0.count)
                }
            }
        ) { force in ending.owner?.end(force: force) }
    }

    /// Ends the helper processes that an unmount would wait for.
    private func leaveMount() {
        keeper.leaveMount()
        kernelCheck.interrupt()
    }

    /// Ends the queues of passcodes and calls. A passcode being tried may wait for the state
    /// directory: another process locks it, or it is on a hanging store. The keys are gone already,
    /// so the wait is short.
    private func stopService() {
        let service = servers.service
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
