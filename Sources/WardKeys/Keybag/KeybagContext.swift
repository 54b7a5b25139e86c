import WardCrypto
import WardFormat
import WardSystem

/// The places of one volume's keybag and device secrets, and the stateless operations on them.
struct KeybagContext {
    let volumePath: String
    let uuid: [UInt8]
    let directory: StateDirectory
    let storage: any KeyStorage
    let clock: DeviceClock
    let device: any DeviceKeyProvider

    init(
        volumePath: String, stateRoot: String, uuid: [UInt8], storage: any KeyStorage,
        clock: DeviceClock
    ) {
        self.volumePath = volumePath
        self.uuid = uuid
        self.storage = storage
        self.clock = clock
        directory = StateDirectory(root: stateRoot, volumeUUID: uuid)
        device = FileDeviceKeyProvider(
            path: directory.deviceKeyPath, volumeUUID: uuid, storage: storage)
    }

    var keybagPath: String { KeybagContext.path(volumePath, Keybag.fileName) }
    var copyPath: String { KeybagContext.path(volumePath, Keybag.copyFileName) }

    static func path(_ directory: String, _ name: String) -> String {
        directory.hasSuffix("/") ? directory + name : directory + "/" + name
    }

    var hierarchy: KeyHierarchy { KeyHierarchy(device: device, uuid: uuid, path: keybagPath) }
    var effaceable: EffaceableKeyFile {
        EffaceableKeyFile(path: directory.effaceableKeyPath, uuid: uuid, storage: storage)
    }
    var ledger: AttemptLedger {
        AttemptLedger(
            path: directory.attemptsPath, uuid: uuid, storage: storage, clock: clock,
            device: device)
    }

    var trustedHosts: TrustedHostFile {
        TrustedHostFile(path: directory.trustedHostsPath, uuid: uuid, storage: storage)
    }

    /// Runs `body` while no other process can change this device's files for the volume.
    func withLock<R: ~Copyable>(
        _ body: () throws(KeybagError) -> R
    ) throws(KeybagError) -> R {
        let lock: Int32?
        do throws(Errno) {
            lock = try storage.lock(directory.lockPath)
        } catch {
            throw .system(error, directory.lockPath, "can't lock")
        }
        defer { if let lock { storage.unlock(lock) } }
        return try body()
    }

    /// Destroys the effaceable key (row L9). The caller holds the device's lock.
    func erase() throws(KeybagError) {
        try effaceable.destroy()
        // The host slots are worthless from here on, but the file has names in it.
        try? trustedHosts.destroy()
        // The log has names in it.
        try? storage.remove(directory.logPath)
    }

    // MARK: Remembered generation

    /// The generation that this device wrote last; nil where the file is lost or damaged.
    func remembered() throws(KeybagError) -> UInt64? {
        do {
            let bytes = try storage.readBytes(
                directory.rememberedPath, limit: RememberedGeneration.bytes)
            let record = try RememberedGeneration(reading: bytes)
            return record.uuid == uuid ? record.generation : nil
        } catch let error as Errno where error != .noSuchFileOrDirectory {
            throw .system(error, directory.rememberedPath, "can't read the remembered generation")
        } catch let error as FormatError where error.code == .newerVersion {
            throw .format(error, directory.rememberedPath)
        } catch {
            return nil
        }
    }

    func remember(_ generation: UInt64) throws(KeybagError) {
        do throws(Errno) {
            try storage.replace(
                directory.rememberedPath,
                with: RememberedGeneration(uuid: uuid, generation: generation).serialized,
                isPublic: false)
        } catch {
            throw .system(error, directory.rememberedPath, "can't store the generation")
        }
    }

    // MARK: Sealing and opening

    func seal(
        _ set: borrowing KeybagKeySet, _ contents: KeybagKeySet.Contents,
        kek: borrowing SecretBytes, format: VolumeFormat, identity: KeybagIdentity,
        kind: KeybagSlot.Kind, derivation: PasscodeDerivation? = nil
    ) throws(KeybagError) -> KeybagSlot {
        do {
            let plain = try set.serialized(contents)
            let sealed = try AEADContext(.aes256GCM, key: kek).sealSecret(
                plain,
                associatedData: KeybagSlot.associatedData(
                    identity, format: format, kind: kind, derivation: derivation))
            return KeybagSlot(kind: kind, derivation: derivation, sealed: sealed)
        } catch {
            throw .noLockedMemory(keybagPath)
        }
    }

    /// The key set of a slot of `keybag`; nil where the key is wrong. Class B's private half, where
    /// the set has it, was checked against the public half.
    func open(
        _ slot: KeybagSlot, of keybag: Keybag, kek: borrowing SecretBytes
    ) throws(KeybagError) -> KeybagKeySet? {
        try KeybagContext.open(
            slot.sealed, kek: kek,
            associatedData: keybag.associatedData(of: slot), identity: keybag.identity,
            path: keybagPath)
    }

    static func open(
        _ sealed: [UInt8], kek: borrowing SecretBytes, associatedData: [UInt8],
        identity: KeybagIdentity, path: String
    ) throws(KeybagError) -> KeybagKeySet? {
        let plain: SecretBytes
        do throws(CryptoError) {
            plain = try AEADContext(.aes256GCM, key: kek).openSecret(
                sealed, associatedData: associatedData)
        } catch {
            if error == .authenticationFailed { return nil }
            throw .noLockedMemory(path)
        }
        let set: KeybagKeySet
        do throws(FormatError) {
            set = try KeybagKeySet(reading: plain)
        } catch {
            throw .format(error, path)
        }
        guard let privateKey = copy(of: .completeUnlessOpen, in: set) else { return set }
        guard X25519.publicKey(of: privateKey) == identity.classBPublicKey else {
            throw KeybagError(
                .damaged, path: path, "the class B key pair in the keybag does not match")
        }
        return set
    }

    private static func copy(
        of protectionClass: ProtectionClass, in set: borrowing KeybagKeySet
    ) -> SecretBytes? {
        guard let key = try? set.key(of: protectionClass) else { return nil }
        return key
    }

    // These are functions because a `do` block can't initialise a noncopyable constant outside
    // itself.

    static func randomKey(path: String) throws(KeybagError) -> SecretBytes {
        do throws(Errno) {
            return try SecretBytes(random: 32)
        } catch {
            throw .noLockedMemory(path)
        }
    }

    static func randomSet(path: String) throws(KeybagError) -> KeybagKeySet {
        do throws(Errno) {
            return try KeybagKeySet.random()
        } catch {
            throw .noLockedMemory(path)
        }
    }

    static func randomCode(path: String) throws(KeybagError) -> RecoveryCode {
        do throws(Errno) {
            return try RecoveryCode.random()
        } catch {
            throw .noLockedMemory(path)
        }
    }

    /// The 32-byte volume key of a set.
    func volumeKey(of set: borrowing KeybagKeySet) throws(KeybagError) -> SecretBytes {
        do throws(Errno) {
            if let key = try set.volumeKey() { return key }
        } catch {
            throw .noLockedMemory(keybagPath)
        }
        throw KeybagError(.damaged, path: keybagPath, "the volume key is missing")
    }

    /// Installs the class keys of a set.
    static func install(
        _ set: borrowing KeybagKeySet, into keyring: ClassKeyring, path: String
    ) throws(KeybagError) {
        // The first pass only copies, so that all keys are installed or none.
        for pass in 0..<2 {
            for protectionClass in ProtectionClass.allCases {
                do throws(Errno) {
                    guard let key = try set.key(of: protectionClass) else { continue }
                    if pass == 1 { keyring.install(key, for: protectionClass) }
                } catch {
                    throw .noLockedMemory(path)
                }
            }
        }
    }
}
