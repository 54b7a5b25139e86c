import WardCrypto
import WardFormat
import WardSystem

/// The secrets beside class B's pair that go into the keys of format 2 (docs/format.md §3.1).
/// `ClassKeyring`'s mutex guards them.
struct ClassBBinding: ~Copyable {
    /// From the volume key; nil in format 1.
    var volumeSecret: SecretBytes?
    /// The capsule of new keys; `Capsule.noID` for none. Its secret stays through locks, because
    /// files of class B are made in every state.
    var presentID = Capsule.noID
    var presentSecret: SecretBytes?
    /// Whether a key was wrapped with the present capsule.
    var isPresentUsed = false
    /// The capsule of the file that was opened last; in memory while class B's key is.
    var openedID = Capsule.noID
    var openedSecret: SecretBytes?

    /// The capsule of new keys, if no key was wrapped with its secret.
    var unusedID: [UInt8]? { isPresentUsed || presentID == Capsule.noID ? nil : presentID }

    mutating func forgetOpened() {
        openedID = Capsule.noID
        openedSecret = nil
    }

    /// Derives the key that wraps a file key. The capsule's secret is in memory, or there is no
    /// capsule. `format`: that of the header with the file key.
    borrowing func wrappingKey(
        _ shared: borrowing SecretBytes, _ ephemeralPublic: [UInt8], _ classPublic: [UInt8],
        capsuleID: [UInt8], format: VolumeFormat
    ) throws(CryptoError) -> SecretBytes {
        guard format >= .version2, volumeSecret != nil else {
            return try OnePassDiffieHellman.wrappingKey(
                sharedSecret: shared, ephemeralPublicKey: ephemeralPublic,
                classPublicKey: classPublic)
        }
        if presentSecret != nil, presentID == capsuleID {
            return try bound(shared, presentSecret!, ephemeralPublic, classPublic, capsuleID)
        }
        if openedSecret != nil, openedID == capsuleID {
            return try bound(shared, openedSecret!, ephemeralPublic, classPublic, capsuleID)
        }
        guard let none = try? SecretBytes(zeroed: 32) else { throw .outOfLockedMemory }
        return try bound(shared, none, ephemeralPublic, classPublic, capsuleID)
    }

    private borrowing func bound(
        _ shared: borrowing SecretBytes, _ capsuleSecret: borrowing SecretBytes,
        _ ephemeralPublic: [UInt8], _ classPublic: [UInt8], _ capsuleID: [UInt8]
    ) throws(CryptoError) -> SecretBytes {
        try OnePassDiffieHellman.wrappingKey(
            sharedSecret: shared, capsuleSecret: capsuleSecret, volumeSecret: volumeSecret!,
            ephemeralPublicKey: ephemeralPublic, classPublicKey: classPublic, capsuleID: capsuleID)
    }
}

extension ClassKeyring {
    /// Wraps class B's keys as format 2 does from now on. Takes over the volume's part of them (32
    /// bytes). Called once, before a key is wrapped.
    package func bindClassB(to volumeSecret: consuming SecretBytes) {
        var handover: SecretBytes? = consume volumeSecret
        state.withLock { $0.binding.volumeSecret = handover.take() }
    }

    /// New keys of class B get the secret of this capsule from now on. Takes over the secret.
    /// Returns the ID of the capsule before it if no key was wrapped with that one.
    package func useCapsule(_ id: [UInt8], secret: consuming SecretBytes) -> [UInt8]? {
        var handover: SecretBytes? = consume secret
        return state.withLock { state -> [UInt8]? in
            let unused = state.binding.unusedID
            state.binding.presentID = id
            state.binding.presentSecret = handover.take()
            state.binding.isPresentUsed = false
            return unused
        }
    }

    /// Gives up the capsule of new keys if no key was wrapped with it, and returns its ID. Keys
    /// that are wrapped after that name no capsule, so that its file can go.
    package func giveUpUnusedCapsule() -> [UInt8]? {
        state.withLock { state -> [UInt8]? in
            guard let unused = state.binding.unusedID else { return nil }
            state.binding.presentID = Capsule.noID
            state.binding.presentSecret = nil
            return unused
        }
    }

    /// The public key to which capsules are made: 1,184 bytes. Throws `unavailable` where class A's
    /// key is not in memory, from which the private one is derived.
    package func capsulePublicKey() throws(KeyringError) -> [UInt8] {
        var result: [UInt8]?
        var failure: CryptoError?
        try withKey(of: .complete) { key in
            do throws(CryptoError) {
                result = try MLKEM768.publicKey(ofSeed: ClassKeyring.capsuleSeed(key))
            } catch {
                failure = error
            }
        }
        if let result { return result }
        throw failure == .outOfLockedMemory ? .outOfLockedMemory : .authenticationFailed
    }

    /// The private key of capsules. Class B's own pair must not give it: a quantum computer finds
    /// the private half of that pair from the public one.
    private static func capsuleSeed(
        _ classAKey: borrowing SecretBytes
    ) throws(CryptoError) -> SecretBytes {
        try KeyDerivation.derive(
            from: classAKey, info: "ward capsules", count: MLKEM768.seedBytes)
    }

    func wrapForB(
        _ fileKey: borrowing SecretBytes, format: VolumeFormat
    ) throws(KeyringError) -> WrappedKey {
        guard let ephemeral = try? SecretBytes(random: 32) else { throw .outOfLockedMemory }
        let ephemeralPublic = X25519.publicKey(of: ephemeral)
        var result: WrappedKey?
        do {
            let shared = try X25519.sharedSecret(ephemeral, classBPublicKey)
            try state.withLock { state in
                let takesCapsule = format >= .version2
                let capsuleID = takesCapsule ? state.binding.presentID : Capsule.noID
                if takesCapsule { state.binding.isPresentUsed = true }
                let key = try state.binding.wrappingKey(
                    shared, ephemeralPublic, classBPublicKey, capsuleID: capsuleID, format: format)
                result = WrappedKey(
                    ephemeralPublic + AESKeyWrap.wrap(fileKey, using: key), capsuleID: capsuleID)
            }
        } catch CryptoError.outOfLockedMemory {
            throw .outOfLockedMemory
        } catch {
            throw .authenticationFailed
        }
        return result!
    }

    func unwrapForB(
        _ wrapped: UnsafeRawBufferPointer, _ capsule: Capsule?, format: VolumeFormat
    ) throws(KeyringError) -> SecretBytes {
        guard wrapped.count == 72 else { throw .authenticationFailed }
        let ephemeralPublic = [UInt8](wrapped[0..<32])
        var result: SecretBytes?
        do {
            try state.withLock { state in
                guard state.b != nil else { throw KeyringError.unavailable }
                try ClassKeyring.open(capsule, &state)
                let shared = try X25519.sharedSecret(state.b!, ephemeralPublic)
                let key = try state.binding.wrappingKey(
                    shared, ephemeralPublic, classBPublicKey,
                    capsuleID: capsule?.id ?? Capsule.noID, format: format)
                result = try AESKeyWrap.unwrap(
                    UnsafeRawBufferPointer(rebasing: wrapped[32...]), using: key)
            }
        } catch CryptoError.outOfLockedMemory {
            throw .outOfLockedMemory
        } catch KeyringError.unavailable {
            throw .unavailable
        } catch {
            throw .authenticationFailed
        }
        return result.take()!
    }

    /// Brings the secret of a capsule into memory.
    private static func open(_ capsule: Capsule?, _ state: inout State) throws {
        guard let capsule, capsule.id != state.binding.presentID,
            capsule.id != state.binding.openedID
        else { return }
        guard state.a != nil else { throw KeyringError.unavailable }
        let seed = try capsuleSeed(state.a!)
        state.binding.openedSecret = try MLKEM768.decapsulate(capsule.ciphertext, seed: seed)
        state.binding.openedID = capsule.id
    }
}
