import WardCrypto
import WardFormat
import WardSystem

/// The seals of a keybag's policy: the device's, and in version 2 the authenticator under class C's
/// key.
extension KeybagContext {
    /// Seals the policy into a finished keybag. `set` has class C's key, for the authenticator.
    func finish(
        _ keybag: consuming Keybag, _ policy: KeybagPolicy, policyKey: borrowing SecretBytes,
        _ set: borrowing KeybagKeySet
    ) throws(KeybagError) -> Keybag {
        let plain = policy.serialized
        return try finish(
            keybag, plain + (try authenticator(of: plain, in: keybag, set)), policyKey: policyKey)
    }

    /// Seals the bytes of a policy and its authenticator.
    func finish(
        _ keybag: consuming Keybag, _ plain: [UInt8], policyKey: borrowing SecretBytes
    ) throws(KeybagError) -> Keybag {
        var keybag = keybag
        do throws(CryptoError) {
            let context = try AEADContext(.aes256GCM, key: policyKey)
            let data = keybag.policyAssociatedData
            keybag.sealedPolicy = plain.withUnsafeBytes {
                context.sealCombined($0, associatedData: data)
            }
        } catch {
            throw .noLockedMemory(keybagPath)
        }
        return keybag
    }

    /// The policy, which authenticates the whole keybag; nil where the key is wrong.
    func policy(
        of keybag: Keybag, policyKey: borrowing SecretBytes
    ) throws(KeybagError) -> KeybagPolicy? {
        guard let plain = try policyBytes(of: keybag, policyKey: policyKey) else { return nil }
        do throws(FormatError) {
            return try KeybagPolicy(reading: Array(plain.prefix(KeybagPolicy.bytes)))
        } catch {
            throw .format(error, keybagPath)
        }
    }

    /// The sealed policy, opened: the policy's bytes and its authenticator. Nil where the key is
    /// wrong.
    func policyBytes(
        of keybag: Keybag, policyKey: borrowing SecretBytes
    ) throws(KeybagError) -> [UInt8]? {
        do throws(CryptoError) {
            return try AEADContext(.aes256GCM, key: policyKey).openSecret(
                keybag.sealedPolicy, associatedData: keybag.policyAssociatedData
            ).withUnsafeBytes { [UInt8]($0) }
        } catch {
            if error == .authenticationFailed { return nil }
            throw .noLockedMemory(keybagPath)
        }
    }

    /// Whether the authenticator of the policy is not that of class C's key in `set`. Version 1 has
    /// none, so there no forgery shows.
    func isPolicyForged(
        in keybag: Keybag, _ set: borrowing KeybagKeySet, policyKey: borrowing SecretBytes
    ) throws(KeybagError) -> Bool {
        guard keybag.format > .version1,
            let bytes = try policyBytes(of: keybag, policyKey: policyKey)
        else { return false }
        let key = try policySealKey(set)
        let message = keybag.authenticatedPolicy(Array(bytes.prefix(KeybagPolicy.bytes)))
        return !message.withUnsafeBytes { message in
            bytes.withUnsafeBytes {
                HMACSHA256.verify($0[KeybagPolicy.bytes...], of: message, key: key)
            }
        }
    }

    private func authenticator(
        of policy: [UInt8], in keybag: Keybag, _ set: borrowing KeybagKeySet
    ) throws(KeybagError) -> [UInt8] {
        guard keybag.format > .version1 else { return [] }
        let tag = HMACSHA256.authenticate(
            keybag.authenticatedPolicy(policy), key: try policySealKey(set))
        return Array(tag.prefix(KeybagPolicy.authenticatorBytes))
    }

    private func policySealKey(
        _ set: borrowing KeybagKeySet
    ) throws(KeybagError) -> SecretBytes {
        let key: SecretBytes?
        do throws(Errno) {
            key = try set.key(of: .completeUntilFirstUserAuthentication)
        } catch {
            throw .noLockedMemory(keybagPath)
        }
        switch key {
        case .some(let key): return try hierarchy.policySealKey(classC: key)
        case .none: preconditionFailure("a policy is sealed by a set with class C")
        }
    }
}
