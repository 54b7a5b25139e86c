import WardControl
import WardKeys
import WardSystem

/// `Erase`, and what follows from it.
extension ControlService {
    func erase(_ call: ControlCall) {
        // A call that was meant for another volume, or was made by mistake, must not be what does it.
        guard call.parameters["uuid"]?.stringValue == store.parameters.uuidString else {
            call.failInvalidParameter("uuid")
            return
        }
        // Not in the queue of the passcodes, where it would wait for them.
        let isTaken = ending.add(always: true) { [self] in
            do throws(KeybagError) {
                try store.erase()
            } catch {
                fail(call, "erase", error)
                return
            }
            hub.emit(
                ControlEvent(
                    kind: .note, state: keeper.stateName,
                    detail: "erased: nothing on this device opens the volume again"))
            endErased()
            call.reply()
        }
        if !isTaken { call.fail(.busy(reason: "the volume is being unmounted")) }
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
