import WardFormat

@testable import WardKeys

extension SimulatedVolume {
    /// Changes the policy as an attacker can who has the device's files, and no passcode. The
    /// device's keys alone seal it.
    func forgePolicy(_ change: (inout KeybagPolicy) -> Void) throws {
        let store = try open()
        var policy = store.policy
        change(&policy)
        try store.context.withLock { () throws(KeybagError) in
            let keybag = store.published.withLock { $0.keybag }
            let hierarchy = store.context.hierarchy
            let effaceable = try store.currentEffaceable(of: keybag)
            let secret = try hierarchy.deviceSecret(effaceable: effaceable)
            let policyKey = try hierarchy.policyKey(secret)
            try store.writeKeybags(
                try store.context.finish(keybag, policy, policyKey: policyKey))
        }
    }
}
