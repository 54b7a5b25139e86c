import Synchronization
import WardControl
import WardKeys
import WardSystem

/// `Erase`, and what follows from it.
extension ControlService {
    /// From an announcement without the passcode to the erase.
    static let eraseDelay = Duration.seconds(60)

    func erase(_ call: ControlCall) {
        // A call that was meant for another volume, or was made by mistake, must not be what does
        // it.
        guard call.parameters["uuid"]?.stringValue == store.parameters.uuidString else {
            call.failInvalidParameter("uuid")
            return
        }
        // A tenth wrong passcode beside this process, or somebody with the state directory, has
        // done it already.
        if store.isErased { return carryOutErase(call) }
        guard call.parameters["passcode"]?.secretValue != nil else { return announceErase(call) }
        withPasscodes(call, ["passcode"]) { [self] in
            guard store.hasPasscode else {
                call.fail(.noPasscodeSet)
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

    /// Whether one was announced.
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

    /// Without the passcode: whoever reaches the socket may ask, and the owner has time to say no.
    /// The first announcement counts.
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

    /// Waits for the deadline on a thread of its own; a manual clock wakes it when it is moved.
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

    /// The mount ends: an announced erase ends with it.
    func stopEraseTimer() { takeEraseBack("by the end of the mount") }

    private func carryOutErase(_ call: ControlCall?) {
        eraseDeadline.withLock { $0 = nil }
        eraseWake.signal()
        // Not in the queue of the passcodes, where it would wait for them.
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

    /// Wipes every key that is still in memory, whatever the state, and ends the mount.
    func endErased() {
        let unmount = unmount
        let keeper = keeper
        ending.add(always: true) {
            keeper.evictEverything()
            _ = unmount(true)
        }
    }
}
