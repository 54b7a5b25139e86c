import WardControl
import WardFormat
import WardKeys
import WardSystem

/// `SetPolicy`, and `ReadRecovery`: what the keybag says beside its keys.
///
/// Concurrency: the server's thread; the work is done in the queue of passcodes.
final class PolicyHandler: Sendable {
    private let store: KeybagStore
    private let keeper: LockKeeper
    private let passcodes: PasscodeQueue
    private let failures: FailureReporter

    init(_ mount: MountParts, passcodes: PasscodeQueue, failures: FailureReporter) {
        store = mount.store
        keeper = mount.keeper
        self.passcodes = passcodes
        self.failures = failures
        store.onForgedPolicy { [keeper, hub = mount.hub] counting in
            // The lock state took its period from the forged policy. The grace period is read at
            // each lock.
            keeper.post(.userInactivePeriodChanged(counting.userInactivePeriod))
            hub.emit(
                ControlEvent(
                    kind: .integrityFailure, state: keeper.stateName,
                    detail: KeybagStore.forgedPolicyText))
        }
    }

    /// `SetPolicy`: stores the policy and applies it at once.
    func setPolicy(_ call: ControlCall) {
        var change = PolicyChange()
        change.erasesAfterTenWrongPasscodes = call.parameters["eraseAfterTries"]?.boolValue
        for (name, field, longest) in [
            ("graceSeconds", \PolicyChange.gracePeriod, KeybagPolicy.longestGracePeriod),
            (
                "userInactiveSeconds", \PolicyChange.userInactivePeriod,
                KeybagPolicy.longestUserInactivePeriod
            ),
        ] {
            guard let seconds = call.parameters[name]?.doubleValue else { continue }
            guard seconds >= 0, seconds <= longest / .seconds(1) else {
                call.failInvalidParameter(name)
                return
            }
            change[keyPath: field] = .seconds(seconds)
        }
        let wanted = change
        let hasPasscode = call.parameters["current"]?.secretValue != nil
        passcodes.run(call, hasPasscode ? ["current"] : [], changesKeybag: true) { [self] in
            let current: Passcode? = hasPasscode ? call.passcode("current") : nil
            if hasPasscode, current == nil { return }
            do throws(KeybagError) {
                try store.changePolicy(wanted, passcode: current)
            } catch {
                // The change may have taken effect, although its last step failed.
                keeper.post(.userInactivePeriodChanged(store.policy.userInactivePeriod))
                failures.answer(call, "change the policy of", error)
                return
            }
            keeper.post(
                .userInactivePeriodChanged(store.policy.userInactivePeriod),
                done: { _ in call.reply() })
        }
    }

    /// `ReadRecovery`: another process made or opened a kit.
    func readRecovery(_ call: ControlCall) {
        passcodes.run(call, []) { [store] in
            store.reloadRecovery()
            call.reply()
        }
    }
}
