import WardControl
import WardKeys
import WardSystem

extension ControlService {
    /// `ReadRecovery`: another process made or opened a kit.
    func readRecovery(_ call: ControlCall) {
        withPasscodes(call, []) { [store] in
            store.reloadRecovery()
            call.reply()
        }
    }

    /// `advanced` is how far a manual clock was moved; it is added to the wall clock.
    func describeRecovery(in status: inout VolumeStatus, advanced: Duration) {
        let history = store.recovery
        status.recoveryKit =
            history.standing(now: SystemClock.sinceEpoch() + advanced).rawValue
        status.recoveryKitMade = history.made.map { Timestamp.text($0) }
        status.recoveryKitVerified = history.verified.map { Timestamp.text($0) }
    }
}
