import WardCrypto
import WardFormat
import WardSystem

/// The content of a recovery kit: all keys of the volume.
public struct RecoveredKeys: ~Copyable, Sendable {
    /// The volume of the keys.
    public let parameters: VolumeParameters
    /// The format for which the kit vouches. Its code proved it.
    public let format: VolumeFormat
    public let classBPublicKey: [UInt8]
    /// Seconds since 1970 when the kit was made.
    public let created: UInt64
    /// 16 bytes, different for each kit.
    public let kitID: [UInt8]
    let set: KeybagKeySet
    private let path: String

    var identity: KeybagIdentity {
        KeybagIdentity(parameters: parameters, classBPublicKey: classBPublicKey)
    }

    fileprivate init(_ kit: RecoveryKit, _ set: consuming KeybagKeySet, path: String) {
        parameters = kit.identity.parameters
        format = kit.format
        classBPublicKey = kit.identity.classBPublicKey
        created = kit.created
        kitID = kit.kitID
        self.set = set
        self.path = path
    }

    /// The 32-byte volume key.
    public borrowing func volumeKey() throws(KeybagError) -> SecretBytes {
        do throws(Errno) {
            if let key = try set.volumeKey() { return key }
        } catch {
            throw .noLockedMemory(path)
        }
        preconditionFailure("opening checked that the set is complete")
    }

    /// Installs all class keys into the keyring; returns the 32-byte volume key.
    public borrowing func install(into keyring: ClassKeyring) throws(KeybagError) -> SecretBytes {
        try KeybagContext.install(set, into: keyring, path: path)
        return try volumeKey()
    }
}

extension KeybagStore {
    /// Makes a recovery kit: a new file at `path`. Returns its code, which is known only now. The
    /// kit vouches for the format of the keybag.
    ///
    /// Needs the passcode where one is set. A kit stays valid when the passcode changes, and can't
    /// be revoked. Throws `passcodeNeeded`, the errors of a wrong passcode, `insideVolume`,
    /// `fileExists`, `system`.
    public func createRecoveryKit(
        passcode: borrowing Passcode?, at path: String
    ) throws(KeybagError) -> RecoveryCode {
        var set = try deviceSet()
        switch passcode {
        case .some(let passcode) where hasPasscode:
            let passcodeSet = try judgeAlone(passcode)
            set.formUnion(passcodeSet)
        default:
            if hasPasscode {
                throw KeybagError(
                    .passcodeNeeded, path: volumePath, "a recovery kit needs the passcode")
            }
        }
        let kitID = SystemRandom.bytes(16)
        let code = try KeybagStore.writeRecoveryKit(
            set, format: format, identity: identity, kitID: kitID, volumePath: volumePath,
            at: path, context.storage)
        // The kit is valid, even where the note fails.
        try? context.withLock { () throws(KeybagError) in
            try context.recovery.noteMade(kitID, at: KeybagContext.secondsSinceEpoch)
        }
        reloadRecovery()
        return code
    }

    private func judgeAlone(_ passcode: borrowing Passcode) throws(KeybagError) -> KeybagKeySet {
        var result: KeybagKeySet?
        var failure: KeybagError?
        operations.withLock { _ in
            do throws(KeybagError) {
                result = try judge(passcode)
            } catch {
                failure = error
            }
        }
        if let result = result.take() { return result }
        throw failure!
    }

    /// Reads the part of a recovery kit that needs no code: its volume, and when it was made.
    /// Nothing in it is authenticated. Throws `damaged`, `newerVersion`, `system`.
    public static func readRecoveryKit(at path: String) throws(KeybagError) -> RecoveryKit {
        try readRecoveryKit(at: path, DiskKeyStorage())
    }

    static func readRecoveryKit(
        at path: String, _ storage: any KeyStorage
    ) throws(KeybagError) -> RecoveryKit {
        let text: [UInt8]
        do throws(Errno) {
            text = try storage.readBytes(path, limit: RecoveryKit.maximumTextBytes)
        } catch {
            throw .system(error, path, "can't read the recovery kit")
        }
        do throws(FormatError) {
            return try RecoveryKit(text: text)
        } catch {
            throw .format(error, path)
        }
    }

    /// Opens a recovery kit with its code; needs neither the volume's device nor its passcode.
    ///
    /// Throws `wrongRecoveryCode`, `damaged`, `newerVersion`, `system`.
    public static func openRecoveryKit(
        at path: String, code: borrowing RecoveryCode
    ) throws(KeybagError) -> RecoveredKeys {
        try openRecoveryKit(at: path, code: code, DiskKeyStorage())
    }

    static func openRecoveryKit(
        at path: String, code: borrowing RecoveryCode, _ storage: any KeyStorage
    ) throws(KeybagError) -> RecoveredKeys {
        let kit = try readRecoveryKit(at: path, storage)
        let kek = try KeyHierarchy.recoveryKEK(code, kitID: kit.kitID, path: path)
        guard
            let set = try KeybagContext.open(
                kit.sealed, kek: kek, associatedData: kit.associatedData, identity: kit.identity,
                path: path)
        else {
            throw KeybagError(
                .wrongRecoveryCode, path: path, "the recovery code is not the one of this kit")
        }
        guard set.contains([.volumeKey, .classD, .passcodeClasses]) else {
            throw KeybagError(.damaged, path: path, "the recovery kit is incomplete")
        }
        return RecoveredKeys(kit, set, path: path)
    }

    static func writeRecoveryKit(
        _ set: borrowing KeybagKeySet, format: VolumeFormat, identity: KeybagIdentity,
        kitID: [UInt8], volumePath: String, at path: String, _ storage: any KeyStorage
    ) throws(KeybagError) -> RecoveryCode {
        let code = try stageRecoveryKit(
            set, format: format, identity: identity, kitID: kitID, volumePath: volumePath,
            for: path, storage)
        try publishRecoveryKit(stagedKit(path, kitID), at: path, storage)
        return code
    }

    /// The kit's name until it is published. It lies in the user's own directory, so the random ID
    /// keeps it apart from the user's files.
    static func stagedKit(_ path: String, _ kitID: [UInt8]) -> String {
        "\(path).\(kitID.map { String($0, radix: 16) }.joined()).new"
    }

    /// Seals and writes a kit, and opens it as a test: a kit that does not open is worse than no
    /// kit.
    static func stageRecoveryKit(
        _ set: borrowing KeybagKeySet, format: VolumeFormat, identity: KeybagIdentity,
        kitID: [UInt8], volumePath: String, for path: String, _ storage: any KeyStorage
    ) throws(KeybagError) -> RecoveryCode {
        guard !Paths.isInside(path, volumePath) else {
            throw KeybagError(
                .insideVolume, path: path, "a recovery kit does not belong inside the volume")
        }
        try requireNoFile(path, storage)
        var kit = RecoveryKit(
            format: format, identity: identity, kitID: kitID,
            created: KeybagContext.secondsSinceEpoch)
        let code = try KeybagContext.randomCode(path: path)
        let kek = try KeyHierarchy.recoveryKEK(code, kitID: kit.kitID, path: path)
        do {
            let plain = try set.serialized([.volumeKey, .classD, .passcodeClasses])
            kit.sealed = try AEADContext(.aes256GCM, key: kek).sealSecret(
                plain, associatedData: kit.associatedData)
        } catch {
            throw .noLockedMemory(path)
        }
        let staged = stagedKit(path, kitID)
        do throws(Errno) {
            try storage.writeDurably(staged, Array(kit.text.utf8), isPublic: false)
        } catch {
            try? storage.remove(staged)
            throw .system(error, path, "can't write the recovery kit")
        }
        do throws(KeybagError) {
            _ = try openRecoveryKit(at: staged, code: code, storage)
        } catch {
            try? storage.remove(staged)
            throw error
        }
        return code
    }

    static func publishRecoveryKit(
        _ staged: String, at path: String, _ storage: any KeyStorage
    ) throws(KeybagError) {
        do throws(Errno) {
            try storage.rename(staged, to: path)
            try storage.sync(Paths.parent(of: path))
        } catch {
            throw .system(error, path, "can't write the recovery kit")
        }
    }

    private static func requireNoFile(
        _ path: String, _ storage: any KeyStorage
    ) throws(KeybagError) {
        do throws(Errno) {
            _ = try storage.read(path, limit: 0)
        } catch {
            if error == .noSuchFileOrDirectory { return }
            throw .system(error, path, "can't look for the recovery kit's file")
        }
        throw KeybagError(.fileExists, path: path, "the file exists and is not overwritten")
    }
}
