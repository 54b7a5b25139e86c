import Synchronization
import WardControl
import WardKeys
import WardSystem

/// `Lock` and `Reboot`, and the locks that the daemon asks for itself.
///
/// Concurrency: any thread. A lock waits for no queue: it goes to the lock thread.
final class LockHandler: Sendable {
    /// The longest reason for a lock that is kept, in scalars: one character may have any number of
    /// them.
    private static let maximumReasonScalars = 200

    private let graceSeconds: Double?
    private let store: KeybagStore
    private let keeper: LockKeeper
    private let time: any TimeSource
    private let hub: EventHub
    private let passcodes: PasscodeQueue
    private let hostEndings: HostEndings
    /// Counts the requested locks and reboots.
    private let asked = Atomic(0)
    /// A restart of the passcode delay, after a reboot, waits in `passcodes`.
    private let isRestartingDelay = Atomic(false)

    init(_ mount: MountParts, passcodes: PasscodeQueue, hostEndings: HostEndings) {
        graceSeconds = mount.options.lock.graceSeconds
        store = mount.store
        keeper = mount.keeper
        time = mount.time
        hub = mount.hub
        self.passcodes = passcodes
        self.hostEndings = hostEndings
    }

    /// The number of locks and reboots requested so far. An unlock requested before one of them
    /// does not undo it.
    var count: Int { asked.load(ordering: .relaxed) }

    func lock(_ call: ControlCall) {
        let now = call.parameters["now"]?.boolValue ?? false
        let endingHosts = call.parameters["endHosts"]?.boolValue ?? false
        if let reason = call.parameters["reason"]?.stringValue {
            let reason = String(
                String.UnicodeScalarView(
                    reason.unicodeScalars.prefix(LockHandler.maximumReasonScalars)))
            hub.emit(
                ControlEvent(kind: .note, state: keeper.stateName, detail: "lock: \(reason)"))
        }
        lock(now: now, endingHosts: endingHosts) { call.reply(.state($0)) }
    }

    /// Begins a lock. Passes the state's name to `done` when the lock has ended, or its grace
    /// period has begun.
    func lock(now: Bool, endingHosts: Bool, done: @escaping @Sendable (String) -> Void) {
        asked.add(1, ordering: .relaxed)
        if endingHosts {
            hostEndings.noteAll(at: time.now)
        }
        keeper.post(
            .lock(
                grace: now ? .zero : store.gracePeriod(asked: graceSeconds),
                endingHosts: endingHosts), done: done)
    }

    /// Locks without a grace period and without trusted hosts, because the usual ways to lock may
    /// fail. Returns at once. Reports `why` where there is something to lock.
    func lockNow(_ why: String) {
        asked.add(1, ordering: .relaxed)
        hostEndings.noteAll(at: time.now)
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

    func reboot(_ call: ControlCall) {
        // In the queue, so after the passcodes being tried and before later ones. Never on the lock
        // thread: the store waits for the disk and for other processes.
        asked.add(1, ordering: .relaxed)
        hostEndings.note()
        // One waiting restart is enough, so a program that reboots in a loop fills no queue.
        if !isRestartingDelay.exchange(true, ordering: .relaxed) {
            passcodes.add { [self] in
                isRestartingDelay.store(false, ordering: .relaxed)
                try? store.restartPasscodeDelay()
            }
        }
        keeper.post(.reboot, done: { call.reply(.state($0)) })
    }
}

extension KeybagStore {
    /// The grace period of the mount's command line, else the volume's present one.
    func gracePeriod(asked seconds: Double?) -> Duration {
        guard let asked = seconds.map({ Duration.seconds($0) }) else { return policy.gracePeriod }
        // The policy may have become shorter since the mount.
        return isForTests ? asked : min(asked, policy.gracePeriod)
    }
}

extension JSONValue {
    /// The answer with the name of the lock state.
    static func state(_ name: String) -> JSONValue { .object([("state", .string(name))]) }
}
