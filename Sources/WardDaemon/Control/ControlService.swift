import WardControl
import WardKeys
import WardSystem
import WardTrustedHosts
import WardVolume

/// The parts of a mount that the handlers of calls share. Each handler takes those that it needs.
struct MountParts: Sendable {
    let options: MountOptions
    let placement: Placement
    let store: KeybagStore
    let volume: Volume
    let keeper: LockKeeper
    let connections: HostConnections
    let maintenance: Maintenance
    let time: any TimeSource
    /// The backing store that can be made full, where the clock is manual.
    let fillable: FillableStorage?
    let hub: EventHub
    let kernelCheck: KernelCheck
}

/// Answers the control socket of a mounted volume: gives each call to its handler.
///
/// Concurrency: `handle` runs on the server's thread and does not wait. The handlers have the
/// queues, and say which. A lock bypasses them and goes to the lock thread.
final class ControlService: ControlHandler {
    let status: StatusHandler
    let mountAttributes: MountAttributeHandler
    private let store: KeybagStore
    private let holders: HolderHandler
    private let locks: LockHandler
    private let passcodes: PasscodeHandler
    private let passcodeQueue: PasscodeQueue
    private let policy: PolicyHandler
    private let trust: TrustHandler
    private let erasing: EraseHandler
    private let ending: UnmountHandler
    private let manual: ManualHandler
    private let backups: BackupHolds
    private let checks: CheckRunner

    /// `unmount` returns the reason why it can't, or nil.
    init(
        _ mount: MountParts, deviceMinor: UInt32,
        describeConnection: @escaping @Sendable (inout VolumeStatus) -> Void,
        unmount: @escaping @Sendable (_ force: Bool) -> String?
    ) {
        store = mount.store
        backups = BackupHolds(
            volume: mount.volume, maintenance: mount.maintenance, time: mount.time, hub: mount.hub)
        checks = CheckRunner(volume: mount.volume, hub: mount.hub)
        holders = HolderHandler(volume: mount.volume, deviceMinor: deviceMinor)
        ending = UnmountHandler(keeper: mount.keeper, unmount: unmount)
        passcodeQueue = PasscodeQueue(backups: backups)
        let failures = FailureReporter(hub: mount.hub, ending: ending)
        let endings = HostEndings()
        locks = LockHandler(mount, passcodes: passcodeQueue, hostEndings: endings)
        trust = TrustHandler(
            mount, endings: endings, passcodes: passcodeQueue, failures: failures)
        erasing = EraseHandler(
            mount, locks: locks, passcodes: passcodeQueue, failures: failures, ending: ending)
        passcodes = PasscodeHandler(
            mount, locks: locks, passcodes: passcodeQueue, failures: failures, erasing: erasing,
            trust: trust)
        policy = PolicyHandler(mount, passcodes: passcodeQueue, failures: failures)
        manual = ManualHandler(mount, erasing: erasing)
        status = StatusHandler(mount, erasing: erasing, describeConnection: describeConnection)
        mountAttributes = MountAttributeHandler(
            status: status, locks: locks, keeper: mount.keeper)
    }

    /// Writes down the time and the connected hosts where that is due. Does not wait.
    func noteHostUseLater() { trust.noteUseLater() }

    /// Ends a check under way. Called before the volume is closed.
    func stopChecks() { checks.stop() }

    /// Finishes the work begun. Passcodes that still wait are not tried.
    func stop() {
        trust.stop()
        backups.stop()
        passcodeQueue.stop { [store] in try? store.notePasscodeDelay() }
        erasing.stop()
        ending.stop()
        holders.stop()
    }

    func handle(_ method: ControlMethod, _ call: ControlCall) {
        switch method {
        case .status: status.tell(call)
        case .holders: holders.find(call)
        case .lock: locks.lock(call)
        case .unlock: passcodes.unlock(call)
        case .reboot: locks.reboot(call)
        case .setPasscode: passcodes.setPasscode(call)
        case .changePasscode: passcodes.changePasscode(call)
        case .removePasscode: passcodes.removePasscode(call)
        case .advance: manual.advance(call)
        case .setFull: manual.setFull(call)
        case .unmount: ending.begin(call)
        case .setPolicy: policy.setPolicy(call)
        case .erase: erasing.erase(call)
        case .cancelErase: erasing.cancel(call)
        case .backup: backups.begin(call)
        case .check: checks.begin(call)
        case .readRecovery: policy.readRecovery(call)
        case .trustAdd: trust.add(call)
        case .trustConnect: trust.connect(call)
        case .trustList: trust.list(call)
        case .trustRemove: trust.remove(call)
        case .monitor: status.monitor(call)
        }
    }

    func handleHelper(_ call: ControlCall) { status.takeTriggers(call) }

    func cannotAccept(_ reason: Errno) {
        lockNow("a client of the control socket could not be taken in: \(reason)")
    }

    /// Locks at once, for the daemon itself: see `LockHandler.lockNow`.
    func lockNow(_ why: String) { locks.lockNow(why) }
}
