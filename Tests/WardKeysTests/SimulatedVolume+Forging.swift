import WardFormat
import WardSystem

@testable import WardKeys

/// The changes of an attacker who has the device's files, and no passcode. The device's keys alone
/// seal a keybag's policy.
extension SimulatedVolume {
    /// Changes the policy. The authenticator of version 2 stays as it was.
    func forgePolicy(_ change: (inout KeybagPolicy) -> Void) throws {
        var policy = try open().policy
        change(&policy)
        try plantPolicy(policy.serialized + policyBytes().dropFirst(KeybagPolicy.bytes))
    }

    /// The bytes of the policy and of its authenticator.
    func policyBytes() throws -> [UInt8] {
        let store = try open()
        let keybag = store.published.withLock { $0.keybag }
        let policyKey = try store.policyKey(of: keybag)
        return try store.context.policyBytes(of: keybag, policyKey: policyKey) ?? []
    }

    /// Seals these bytes as the policy of the keybag that is in place.
    func plantPolicy(_ bytes: [UInt8]) throws {
        let store = try open()
        try store.context.withLock { () throws(KeybagError) in
            let keybag = store.published.withLock { $0.keybag }
            let policyKey = try store.policyKey(of: keybag)
            try store.writeKeybags(
                try store.context.finish(keybag, bytes, policyKey: policyKey))
        }
    }

    /// Puts other bytes in the place of the passcode slot's keys, and seals the policy anew. Salt
    /// and cost stay, so each passcode stretches to the same as before.
    func forgePasscodeSlot() throws {
        let store = try open()
        try store.context.withLock { () throws(KeybagError) in
            var keybag = store.published.withLock { $0.keybag }
            let policyKey = try store.policyKey(of: keybag)
            guard let slot = keybag.passcodeSlot else { return }
            keybag.passcodeSlot = KeybagSlot(
                kind: .passcode, derivation: slot.derivation,
                sealed: SystemRandom.bytes(slot.sealed.count))
            let policy = store.policy.serialized
            let authenticator = [UInt8](
                repeating: 0, count: keybag.format == .version1 ? 0 : 16)
            try store.writeKeybags(
                try store.context.finish(keybag, policy + authenticator, policyKey: policyKey))
        }
    }

    /// Makes a keybag of version 1 of one of version 2: seals the device slot and the policy anew,
    /// and keeps the passcode slot.
    func downgrade() throws {
        let store = try open()
        let set = try store.deviceSet()
        try store.context.withLock { () throws(KeybagError) in
            let keybag = store.published.withLock { $0.keybag }
            let secret = try store.context.hierarchy.deviceSecret(
                effaceable: try store.currentEffaceable(of: keybag))
            let slot = try store.context.seal(
                set, [.volumeKey, .classD], kek: try store.context.hierarchy.deviceKEK(secret),
                format: .version1, identity: keybag.identity, kind: .device)
            let older = Keybag(
                format: .version1, identity: keybag.identity, generation: keybag.generation,
                deviceSlot: slot, passcodeSlot: keybag.passcodeSlot)
            try store.writeKeybags(
                try store.context.finish(
                    older, store.policy.serialized,
                    policyKey: try store.context.hierarchy.policyKey(secret)))
        }
    }
}

extension KeybagStore {
    fileprivate func policyKey(of keybag: Keybag) throws(KeybagError) -> SecretBytes {
        let secret = try context.hierarchy.deviceSecret(
            effaceable: try currentEffaceable(of: keybag))
        return try context.hierarchy.policyKey(secret)
    }
}
