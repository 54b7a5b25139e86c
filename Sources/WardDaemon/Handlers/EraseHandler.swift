import Synchronization
import WardControl
import WardKeys
import WardSystem

/// `Erase` and `CancelErase`, and the time between an announcement and the erase.
///
/// Concurrency: any thread; the mutex of `deadline` is held for moments. An announced erase waits
/// on the thread `ward-erase`.
final class EraseHandler: Sendable {
    /// The time from an announcement without the passcode to the erase.
    private static let delay = Duration.seconds(60)

    private let store: KeybagStore
    private let keeper: LockKeeper
    private let time: any TimeSource
    private let hub: EventHub
    private let locks: LockHandler
    private let passcodes: PasscodeQueue
    private let failures: FailureReporter
    private let ending: UnmountHandler
    /// When an announced erase is due, on the clock of grace periods.
    private let deadline = Mutex<Duration?>(nil)
    /// Signalled when `deadline` changes.
    private let wake = WakeWord()

    init(
        _ mount: MountParts, locks: LockHandler, passcodes: PasscodeQueue,
        failures: FailureReporter, ending: UnmountHandler
    ) {
        store = mount.store
        keeper = mount.keeper
        time = mount.time
        hub = mount.hub
        self.locks = locks
        self.passcodes = passcodes
        self.failures = failures
        self.ending = ending
    }

    /// The time until an announced erase; nil where none is announced.
    var timeLeft: Duration? { deadline.withLock { $0 }.map { max(.zero, $0 - time.now) } }

    /// Lets the thread that waits look at a manual clock, which was moved.
    func noteTime() { wake.signal() }

    /// Cancels an announced erase at the end of the mount.
    func stop() { takeBack("by the end of the mount") }

    func erase(_ call: ControlCall) {
        // A call for another volume, or a mistaken one, must not erase this volume.
        guard call.parameters["uuid"]?.stringValue == store.parameters.uuidString else {
            call.failInvalidParameter("uuid")
            return
        }
        // The key is gone already: by a tenth wrong passcode in another process, or by a program
        // with access to the state directory.
        if store.isErased { return carryOut(call) }
        guard call.parameters["passcode"]?.secretValue != nil else { return announce(call) }
        passcodes.run(call, ["passcode"]) { [self] in
            guard store.hasPasscode else {
                call.fail(.refused(.noPasscodeSet))
                return
            }
            guard let passcode = call.passcode("passcode") else { return }
            let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
            defer { keys.evict(.all) }
            do throws(KeybagError) {
                try store.openPasscodeSlot(passcode, into: keys)
            } catch {
                failures.answer(call, "erase", error)
                return
            }
            carryOut(call)
        }
    }

    func cancel(_ call: ControlCall) {
        let wasAnnounced = takeBack("by ward erase --cancel")
        call.reply(.object([("cancelled", .bool(wasAnnounced))]))
    }

    /// Cancels an announced erase. Returns whether there was one.
    @discardableResult
    func takeBack(_ how: String) -> Bool {
        let wasAnnounced = deadline.withLock { deadline in
            defer { deadline = nil }
            return deadline != nil
        }
        guard wasAnnounced else { return false }
        wake.signal()
        hub.emit(
            ControlEvent(
                kind: .note, state: keeper.stateName, detail: "erasing was taken back \(how)"))
        return true
    }

    /// Announces an erase without the passcode. Every program that reaches the socket may ask, so
    /// the user gets time to cancel. A second announcement does not change the deadline.
    private func announce(_ call: ControlCall) {
        let delay = EraseHandler.delay
        let deadline = deadline.withLock { deadline -> (due: Duration, isNew: Bool) in
            if let deadline { return (deadline, false) }
            deadline = time.now + delay
            return (time.now + delay, true)
        }
        if deadline.isNew {
            hub.emit(
                ControlEvent(
                    kind: .note, state: keeper.stateName, secondsLeft: delay.inSeconds,
                    detail: "will be erased without the passcode in \(Int(delay.inSeconds)) s: "
                        + "ward erase --cancel, or an unlock, takes it back"))
            locks.lockNow("it is to be erased")
            startTimer()
        }
        let left = max(.zero, deadline.due - time.now).inSeconds
        call.reply(.object([("eraseInSeconds", .double(left))]))
    }

    /// Waits for the deadline on a thread of its own. A manual clock wakes it when it is moved.
    private func startTimer() {
        let thread = try? SystemThread("ward-erase") { [self] in
            while let deadline = deadline.withLock({ $0 }) {
                let left = deadline - time.now
                if left <= .zero { break }
                wake.wait(timeout: time is ManualTime ? nil : left)
            }
            let isDue = deadline.withLock { deadline in
                defer { deadline = nil }
                return deadline != nil
            }
            if isDue { carryOut(nil) }
        }
        guard let thread else {
            takeBack("for want of a thread to wait for it")
            return
        }
        thread.detach()
    }

    private func carryOut(_ call: ControlCall?) {
        deadline.withLock { $0 = nil }
        wake.signal()
        // Runs outside of the queue of passcodes, so that it does not wait for them.
        let isTaken = ending.add { [self] in
            do throws(KeybagError) {
                try store.erase()
            } catch {
                if let call {
                    failures.answer(call, "erase", error)
                } else {
                    hub.emit(
                        ControlEvent(
                            kind: .note, state: keeper.stateName,
                            detail: "can't erase the volume: \(error)"))
                }
                return
            }
            hub.emit(
                ControlEvent(
                    kind: .note, state: keeper.stateName,
                    detail: "erased: nothing on this device opens the volume again"))
            ending.endErased()
            call?.reply()
        }
        if !isTaken { call?.fail(.busy(reason: "the volume is being unmounted")) }
    }
}
