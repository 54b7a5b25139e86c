import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// Everything that belongs to one mount, put together in `init` and taken apart in `finish`.
final class MountedService: @unchecked Sendable {
    // Sendable: constant after `init`, but for what the atomics say.

    let info: MountedInfo
    private let options: MountOptions
    private let runtime: RuntimeDirectory
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
    /// For programs in a sandbox.
    private let stateServer: ControlServer
    private let watchdog: WatchdogProcess?
    private let sessionWatch: SessionWatchProcess?
    private let isEnding = Atomic(false)
    private let isCuttingOff = Atomic(false)
    private let isFinished = Atomic(false)
    private let served = WakeDescriptor()

    init(
        _ options: MountOptions, _ placement: Placement, _ runtime: RuntimeDirectory
    ) throws(DaemonError) {
        self.options = options
        self.runtime = runtime
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
        let socketPath = runtime.socketPath(uuid: uuid)
        volume.setVirtualAttributes(socketPath: socketPath)
        do throws(FUSEError) {
            connection = try FUSEConnection.mount(
                FUSEMountOptions(
                    mountPoint: placement.mountPoint, fileSystemName: placement.volumePath,
                    allowOther: options.allowOther, readOnly: options.readOnly,
                    sharedStorage: options.sharedStorage,
                    transport: options.transport.transport))
        } catch {
            try? volume.close()
            log.stop()
            throw DaemonError(error)
        }
        volume.setNotifier(connection)
        let noteHelper: @Sendable (String) -> Void = { [log] in log.write(.warning, $0) }
        watchdog =
            options.usesWatchdog
            ? WatchdogProcess(
                connection, volumePath: placement.volumePath, report: noteHelper) : nil
        maintenance = Maintenance(volume: volume, log: log)
        let machine = LockStateMachine(
            hasPasscode: store.hasPasscode, userInactivePeriod: store.policy.userInactivePeriod,
            now: time.now)
        let connections = HostConnections()
        keeper = LockKeeper(
            volume: volume, connection: connection, machine: machine, time: time, hub: hub,
            maintenance: maintenance, connections: connections,
            flusher: options.usesWatchdog
                ? PageFlusher(volume: volume, connection: connection) : nil)
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
        info = MountedInfo(
            uuid: uuid, volumePath: placement.volumePath, mountPoint: connection.mountPoint,
            socketPath: socketPath, state: machine.state.rawName)
        stateService = StateService(service)
        do throws(ControlError) {
            server = try ControlServer(
                socketPath: socketPath, version: options.version, handler: service)
            stateServer = try ControlServer(
                socketPath: StateInterface.socketPath(besides: socketPath),
                version: options.version, methods: StateInterface.methods, handler: stateService)
            try runtime.record(
                MountedVolume(
                    uuid: uuid, volume: placement.volumePath, mountpoint: connection.mountPoint,
                    pid: Int(getpid()), socket: socketPath))
        } catch {
            watchdog?.stop()
            try? connection.unmount(lazy: true)
            try? volume.close()
            log.stop()
            throw DaemonError(error)
        }
        maintenance.everyInterval { [weak service] in service?.noteHostUseLater() }
        // Last: it is a client of the socket.
        sessionWatch =
            SessionWatchProcess.isUseful
            ? SessionWatchProcess(
                socketPath: socketPath, mountPoint: connection.mountPoint,
                locksWithScreen: options.locksWithScreen, report: noteHelper) : nil
        ending.owner = self
        hub.emit(
            ControlEvent(
                kind: .mounted, state: machine.state.rawName, path: connection.mountPoint,
                detail: "\(placement.volumePath), \(uuid)"))
        if options.usesWatchdog, watchdog == nil {
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

    /// Breaks the circle between the service that is asked to end and the calls that ask.
    private final class Ending: @unchecked Sendable {
        // Sendable: written once, before the mount answers calls that use it.
        weak var owner: MountedService?
    }

    /// Returns when the kernel has ended the connection.
    func serve() {
        connection.serve(volume, threads: options.threads ?? FUSEConnection.usualThreads)
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

    /// Unmounts, so that `serve` returns. Without `force` only where nothing is in use; else the reason is returned.
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

    /// Ends the connection where the kernel has not after `grace`, although the mount is gone from the mount table:
    /// programs have files open, or another mount namespace (a container, unshare(1)) has a copy of the mount, which
    /// umount(2) neither sees nor takes away. What they mapped is written back first.
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
            // No way to abort: the kernel does it when the last descriptor of the device closes.
            finish()
            _exit(0)
        }
        // Without a thread to be had the caller waits.
        if let thread = try? SystemThread("ward-cut", body) { thread.detach() } else { body() }
    }

    /// After the last request: makes everything durable, wipes the keys, removes socket and record.
    func finish() {
        guard !isFinished.exchange(true, ordering: .relaxed) else {
            // Another thread is at it and ends the process.
            while true { pause() }
        }
        if !isEnding.load(ordering: .relaxed) {
            hub.emit(ControlEvent(kind: .unmounting, state: keeper.stateName))
        }
        // First of all: what follows may wait for a store that hangs.
        volume.keyring.evict(.all)
        watchdog?.stop()
        sessionWatch?.stop()
        maintenance.stop()
        service.stopChecks()
        keeper.stop()
        do throws(Errno) {
            try volume.close()
        } catch {
            log.write(.error, "the volume could not be closed cleanly: \(error)")
        }
        volume.keyring.evict(.all)
        // A mount that was aborted is still in the table, dead.
        try? connection.unmount(lazy: true)
        stopService()
        runtime.forget(uuid: uuid)
        server.stop()
        stateServer.stop()
        log.write(.notice, "unmounted")
        log.stop()
    }
}

extension MountedService {
    /// Ends the queues of passcodes and calls. A passcode that is being tried may wait for the state directory, which
    /// another process has locked or which lies on a store that hangs; the keys are gone, so nothing is waited for long.
    private func stopService() {
        let service = service
        let done = WakeDescriptor()
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

/// The keybag, and what the device slot gave.
private struct OpenedKeys: ~Copyable {
    let store: KeybagStore
    let keyring: ClassKeyring
    let volumeKey: SecretBytes
    /// What was put right on the way.
    let notes: [String]

    /// `manualClock`: for the delays after wrong passcodes, where the volume is one for tests. Else nobody gets around them
    /// by a mount whose clock can be moved.
    static func open(
        _ options: MountOptions, _ placement: Placement, manualClock: DeviceClock?
    ) throws(DaemonError) -> OpenedKeys {
        var store = try openStore(options, placement, .system)
        if options.isVolatile {
            // A power cut must not take back the count of wrong passcodes, nor a class that was made stronger (rows L5, I7).
            guard store.isForTests else {
                throw DaemonError(
                    "mount", options.volumePath, "--volatile is for volumes of tests only",
                    hint: "mount it without --volatile", exitCode: DaemonError.Exit.usage)
            }
            Durability.giveUp()
        }
        var notes = store.notes
        if let manualClock, store.isForTests {
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
