import WardCrypto
import WardFormat
import WardSystem

/// A passcode after scrypt, with the parameters of that.
struct StretchedPasscode: ~Copyable {
    let derivation: PasscodeDerivation
    let secret: SecretBytes
}

/// Derives the keys that seal a keybag from the device's secrets. Every constant is normative
/// (docs/format-keybag.md).
///
/// ```
/// device secret     = entangle("ward device v1", effaceable key)
/// device KEK        = HKDF(device secret,   salt: UUID, info: "ward keybag device slot v1")
/// policy key        = HKDF(device secret,   salt: UUID, info: "ward keybag policy v1")
/// stretched         = scrypt(passcode, salt, N, r, p)
/// entangled         = entangle("ward passcode v1", HMAC(effaceable key, stretched))
/// passcode KEK      = HKDF(entangled,       salt: UUID, info: "ward keybag passcode slot v1")
/// wrong-tag         = HKDF(entangled,       salt: UUID, info: "ward wrong passcode v2" ‖
///                          SHA-256(associated data of the passcode slot ‖ sealed set))
/// recovery KEK      = HKDF(recovery code,   salt: kit ID, info: "ward recovery kit v1")
/// hosts MAC key     = HKDF(device secret,   salt: UUID, info: "ward trusted hosts v1")
/// bound             = entangle("ward trusted host v1", HMAC(effaceable key, class C key))
/// host slot key     = HKDF(bound,           salt: UUID, info: "ward trusted host slot v1")
/// host KEK          = HKDF(host secret,     salt: host ID, info: "ward trusted host v1")
/// policy seal key   = HKDF(class C key,     salt: UUID, info: "ward policy seal")
/// ```
///
/// The effaceable key enters all keys of the device: without it no slot on the device opens.
struct KeyHierarchy {
    let device: any DeviceKeyProvider
    let uuid: [UInt8]
    /// The path for errors about memory.
    let path: String

    func deviceSecret(effaceable: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try device.entangle(effaceable, purpose: "ward device v1")
    }

    func deviceKEK(_ deviceSecret: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try expand(deviceSecret, salt: uuid, info: "ward keybag device slot v1")
    }

    func policyKey(_ deviceSecret: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try expand(deviceSecret, salt: uuid, info: "ward keybag policy v1")
    }

    /// The key of the policy's authenticator, which the device's files alone don't give.
    func policySealKey(classC: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try expand(classC, salt: uuid, info: "ward policy seal")
    }

    /// Stretches a new passcode under a fresh salt.
    func stretch(
        new passcode: borrowing Passcode, cost: Scrypt.Parameters
    ) throws(KeybagError) -> StretchedPasscode {
        let derivation = PasscodeDerivation(
            cost: cost, salt: SystemRandom.bytes(PasscodeDerivation.saltBytes))
        return StretchedPasscode(
            derivation: derivation, secret: try stretch(passcode, derivation))
    }

    /// Runs scrypt on a passcode. This is the slow part.
    func stretch(
        _ passcode: borrowing Passcode, _ derivation: PasscodeDerivation
    ) throws(KeybagError) -> SecretBytes {
        do throws(CryptoError) {
            return try passcode.withSecret { (secret) throws(CryptoError) in
                try Scrypt.derive(
                    from: secret, salt: derivation.salt, parameters: derivation.cost)
            }
        } catch {
            let attempt = "can't stretch the passcode"
            if error == .outOfLockedMemory { throw .system(.noMemory, path, attempt) }
            // With valid parameters, BoringSSL fails only where memory runs out; this memory is not
            // locked.
            throw KeybagError(.system(.noMemory), path: path, "\(attempt): \(Errno.noMemory)")
        }
    }

    func entangled(
        _ stretched: borrowing SecretBytes, effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> SecretBytes {
        let bound: SecretBytes
        do throws(CryptoError) {
            bound = try HMACSHA256.derive(stretched, key: effaceable)
        } catch {
            throw .noLockedMemory(path)
        }
        return try device.entangle(bound, purpose: "ward passcode v1")
    }

    func passcodeKEK(_ entangled: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try expand(entangled, salt: uuid, info: "ward keybag passcode slot v1")
    }

    /// The tag of a passcode that `slot` of `keybag` refuses. Another slot may accept the passcode:
    /// a person with the device's files makes one that refuses the owner's. So the tag is of this
    /// slot alone.
    func wrongPasscodeTag(
        _ entangled: borrowing SecretBytes, _ slot: KeybagSlot, of keybag: Keybag
    ) throws(KeybagError) -> SecretBytes {
        let judge = SHA256Digest.hash(keybag.associatedData(of: slot) + slot.sealed)
        return try expand(
            entangled, salt: uuid, info: Array("ward wrong passcode v2".utf8) + judge)
    }

    func hostsMACKey(_ deviceSecret: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try expand(deviceSecret, salt: uuid, info: "ward trusted hosts v1")
    }

    /// The part of class C's key that goes into the host slots' key: afterwards the class key
    /// itself is not needed.
    func boundToDevice(
        classC: borrowing SecretBytes, effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> SecretBytes {
        do throws(CryptoError) {
            return try HMACSHA256.derive(classC, key: effaceable)
        } catch {
            throw .noLockedMemory(path)
        }
    }

    /// `bound` is the result of `boundToDevice`.
    func hostSlotKey(_ bound: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        let entangled = try device.entangle(bound, purpose: "ward trusted host v1")
        return try expand(entangled, salt: uuid, info: "ward trusted host slot v1")
    }

    func hostKEK(
        _ secret: borrowing SecretBytes, hostID: [UInt8]
    ) throws(KeybagError) -> SecretBytes {
        try expand(secret, salt: hostID, info: "ward trusted host v1")
    }

    static func recoveryKEK(
        _ code: borrowing RecoveryCode, kitID: [UInt8], path: String
    ) throws(KeybagError) -> SecretBytes {
        do throws(CryptoError) {
            return try code.withSecret { (secret) throws(CryptoError) in
                try KeyDerivation.derive(from: secret, salt: kitID, info: "ward recovery kit v1")
            }
        } catch {
            throw .noLockedMemory(path)
        }
    }

    private func expand(
        _ secret: borrowing SecretBytes, salt: [UInt8], info: String
    ) throws(KeybagError) -> SecretBytes {
        try expand(secret, salt: salt, info: Array(info.utf8))
    }

    private func expand(
        _ secret: borrowing SecretBytes, salt: [UInt8], info: [UInt8]
    ) throws(KeybagError) -> SecretBytes {
        do throws(CryptoError) {
            return try KeyDerivation.derive(from: secret, salt: salt, info: info)
        } catch {
            throw .noLockedMemory(path)
        }
    }
}
