import WardControl
import WardKeys
import WardSystem

extension ControlService {
    /// `SetPolicy`: stores the policy and applies it at once.
    func setPolicy(_ call: ControlCall) {
        var change = PolicyChange()
        change.erasesAfterTenWrongPasscodes = call.parameters["eraseAfterTries"]?.boolValue
        for (name, field) in [
            ("graceSeconds", \PolicyChange.gracePeriod),
            ("userInactiveSeconds", \PolicyChange.userInactivePeriod),
        ] {
            guard let seconds = call.parameters[name]?.doubleValue else { continue }
            guard seconds >= 0, seconds <= 1_000_000_000 else {
                call.failInvalidParameter(name)
                return
            }
            change[keyPath: field] = .seconds(seconds)
        }
        let wanted = change
        let hasPasscode = call.parameters["current"]?.secretValue != nil
        withPasscodes(call, hasPasscode ? ["current"] : [], changesKeybag: true) { [self] in
            let current: Passcode? = hasPasscode ? passcode("current", of: call) : nil
            if hasPasscode, current == nil { return }
            do throws(KeybagError) {
                try store.changePolicy(wanted, passcode: current)
            } catch {
                // The change may have taken effect, although its last step failed.
                keeper.post(.userInactivePeriodChanged(store.policy.userInactivePeriod))
                fail(call, "change the policy of", error)
                return
            }
            keeper.post(
                .userInactivePeriodChanged(store.policy.userInactivePeriod),
                done: { _ in call.reply() })
        }
    }
}
