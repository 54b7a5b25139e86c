import Synchronization
import WardControl
import WardKeys
import WardSystem

/// `Erase` and the actions that follow.
extension ControlService {
    /// The time from an announcement without the passcode to the erase.
    static let eraseDelay = Duration.seconds(60)

    func erase(_ call: ControlCall) {
        // A call for another volume, or a mistaken one, must not erase this volume.
        guard call.parameters["uuid"]?.stringValue == store.parameters.uuidString else {
            call.failInvalidParameter("uuid")
            return
        }
        // The key is gone already: by a tenth wrong passcode in another process, or by a program
        // with access to the state directory.
        if store.isErased { return carryOutErase(call) }
        guard call.parameters["passcode"]?.secretValue != nil else { return announceErase(call) }
        withPasscodes(call, ["passcode"]) { [self] in
            guard store.hasPasscode else {
                call.fail(.refused(.noPasscodeSet))
                return
            }
            guard let passcode = passcode("passcode", of: call) else { return }
            let keys = ClassKeyring(classBPublicKey: store.classBPublicKey)
            defer { keys.evict(.all) }
            do throws(KeybagError) {
                try store.openPasscodeSlot(passcode, into: keys)
            } catch {
                fail(call, "erase", error)
                return
            }
            carryOutErase(call)
        }
    }

    func cancelErase(_ call: ControlCall) {
        let wasAnnounced = takeEraseBack("by ward erase --cancel")
        call.reply(.object([("cancelled", .bool(wasAnnounced))]))
    }

    /// Cancels an announced erase. Returns whether there was one.
    @discardableResult
    func takeEraseBack(_ how: String) -> Bool {
        let wasAnnounced = eraseDeadline.withLock { deadline in
            defer { deadline = nil }
            return deadline != nil
        }
        guard wasAnnounced else { return false }
        eraseWake.signal()
        hub.emit(
            ControlEvent(
                kind: .note, state: keeper.stateName, detail: "erasing was taken back \(how)"))
        return true
    }

    /// Announces an erase without the passcode. Every program that reaches the socket may ask, so
    /// the user gets time to cancel. A second announcement does not change the deadline.
    private func announceErase(_ call: ControlCall) {
        let delay = ControlService.eraseDelay
        let deadline = eraseDeadline.withLock { deadline -> (due: Duration, isNew: Bool) in
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
            lockNow("it is to be erased")
            startEraseTimer()
        }
        let left = max(.zero, deadline.due - time.now).inSeconds
        call.reply(.object([("eraseInSeconds", .double(left))]))
    }

    /// Waits for the deadline on a thread of its own. A manual clock wakes it when it is moved.
    private func startEraseTimer() {
        let thread = try? SystemThread("ward-erase") { [self] in
            while let deadline = eraseDeadline.withLock({ $0 }) {
                let left = deadline - time.now
                if left <= .zero { break }
                eraseWake.wait(timeout: time is ManualTime ? nil : left)
            }
            let isDue = eraseDeadline.withLock { deadline in
                defer { deadline = nil }
                return deadline != nil
            }
            if isDue { carryOutErase(nil) }
        }
        guard let thread else {
            takeEraseBack("for want of a thread to wait for it")
            return
        }
        thread.detach()
    }

    /// Cancels an announced erase at the end of the mount.
    func stopEraseTimer() { takeEraseBack("by the end of the mount") }

    private func carryOutErase(_ call: ControlCall?) {
        eraseDeadline.withLock { $0 = nil }
        eraseWake.signal()
        // Runs outside of the queue of passcodes, so that it does not wait for them.
        let isTaken = ending.add(always: true) { [self] in
            do throws(KeybagError) {
                try store.erase()
            } catch {
                if let call {
                    fail(call, "erase", error)
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
            endErased()
            call?.reply()
        }
        if !isTaken { call?.fail(.busy(reason: "the volume is being unmounted")) }
    }

    /// Wipes every key in memory, in any state, and ends the mount.
    func endErased() {
        let unmount = unmount
        let keeper = keeper
        ending.add(always: true) {
            keeper.evictEverything()
            _ = unmount(true)
        }
    }
}
