import WardCrypto
import WardFormat
import WardSystem

extension KeybagStore {
    /// Makes the keybag of a new volume in the existing directory `volumePath`, its copy, and this
    /// device's secrets for it. Every class gets a fresh key. The change `policy` is applied to the
    /// usual policy. The keybag gets the version of the volume's `format`.
    ///
    /// With `recoveryKitPath` it also makes a recovery kit there and returns its code, which is
    /// known only now. The closure `makeRoot` makes the rest of the volume, durably. It gets the
    /// volume key and a keyring with every class key, which is emptied after it. The keybag, which
    /// marks the directory as a volume, is written after that (decision 0053). Throws
    /// `alreadyAVolume`, `insideVolume`, `fileExists`, `system`; then neither keybag nor kit is
    /// left.
    public static func create(
        volumePath: String, stateRoot: String, parameters: VolumeParameters,
        passcode: borrowing Passcode?, cost: ScryptCost, recoveryKitPath: String? = nil,
        policy: PolicyChange = PolicyChange(), format: VolumeFormat = .ofNewVolumes,
        makeRoot: (borrowing SecretBytes, ClassKeyring) throws(KeybagError) -> Void
    ) throws(KeybagError) -> RecoveryCode? {
        try create(
            volumePath: volumePath, stateRoot: stateRoot, parameters: parameters,
            passcode: passcode, cost: cost, recoveryKitPath: recoveryKitPath, policy: policy,
            format: format, storage: DiskKeyStorage(), makeRoot: makeRoot)
    }

    static func create(
        volumePath: String, stateRoot: String, parameters: VolumeParameters,
        passcode: borrowing Passcode?, cost: ScryptCost, recoveryKitPath: String?,
        policy: PolicyChange = PolicyChange(), format: VolumeFormat = .ofNewVolumes,
        storage: any KeyStorage,
        makeRoot: (borrowing SecretBytes, ClassKeyring) throws(KeybagError) -> Void = { _, _ in }
    ) throws(KeybagError) -> RecoveryCode? {
        let context = KeybagContext(
            volumePath: volumePath, stateRoot: stateRoot, uuid: parameters.uuid, storage: storage,
            clock: .system)
        try requireFree(context)
        let set = try KeybagContext.randomSet(path: volumePath)
        guard let privateKey = try? set.key(of: .completeUnlessOpen) else {
            throw .noLockedMemory(volumePath)
        }
        let identity = KeybagIdentity(
            parameters: parameters, classBPublicKey: X25519.publicKey(of: privateKey))
        // The kit is written first, so that no volume exists without its kit. It gets its name
        // last: an interrupted command that runs again must not find its own kit in the way.
        let kitID = SystemRandom.bytes(16)
        let staged = recoveryKitPath.map { stagedKit($0, kitID) }
        let code = try recoveryKitPath.map { path throws(KeybagError) in
            try stageRecoveryKit(
                set, format: format, identity: identity, kitID: kitID, volumePath: volumePath,
                for: path, storage)
        }
        let keyring = ClassKeyring(classBPublicKey: identity.classBPublicKey)
        defer { keyring.evict(.all) }
        do throws(KeybagError) {
            guard let volumeKey = try? set.volumeKey() else { throw .noLockedMemory(volumePath) }
            try KeybagContext.install(set, into: keyring, path: volumePath)
            let keybag = try makeDeviceFiles(
                context, set, format, identity, passcode, cost, policy)
            if recoveryKitPath != nil {
                try context.recovery.noteMade(kitID, at: KeybagContext.secondsSinceEpoch)
            }
            try makeRoot(volumeKey, keyring)
            try write(keybag, context)
            try context.remember(keybag.generation)
            if let staged, let recoveryKitPath {
                try publishRecoveryKit(staged, at: recoveryKitPath, storage)
            }
        } catch {
            for path in [staged, context.keybagPath, context.copyPath] {
                if let path { try? storage.remove(path) }
            }
            throw error
        }
        return code
    }

    static func requireOutside(_ context: KeybagContext) throws(KeybagError) {
        guard !Paths.isInside(context.directory.path, context.volumePath) else {
            throw KeybagError(
                .insideVolume, path: context.directory.path,
                "the state directory lies inside the volume, where a copy would carry it along")
        }
    }

    private static func requireFree(_ context: KeybagContext) throws(KeybagError) {
        try requireOutside(context)
        for path in [context.keybagPath, context.copyPath] {
            do throws(Errno) {
                _ = try context.storage.read(path, limit: Keybag.maximumBytes)
            } catch {
                if error == .noSuchFileOrDirectory { continue }
                throw .system(error, path, "can't look for a keybag")
            }
            throw KeybagError(.alreadyAVolume, path: path, "there is a volume here already")
        }
    }

    private static func makeDeviceFiles(
        _ context: KeybagContext, _ set: borrowing KeybagKeySet, _ format: VolumeFormat,
        _ identity: KeybagIdentity, _ passcode: borrowing Passcode?, _ cost: ScryptCost,
        _ wanted: PolicyChange
    ) throws(KeybagError) -> Keybag {
        let directory = context.directory
        let effaceable = try KeybagContext.randomKey(path: directory.path)
        do throws(Errno) {
            try context.storage.makeDirectory(directory.path)
        } catch {
            throw .system(error, directory.path, "can't make the state directory")
        }
        try FileDeviceKeyProvider(
            path: directory.deviceKeyPath, volumeUUID: context.uuid, storage: context.storage
        ).create()
        try context.effaceable.store(effaceable)
        // Before the keybag: in a finished volume, a missing file means that it was lost.
        try context.ledger.store(PasscodePolicy())
        let cost = cost.parameters()
        let stretched = try stretch(context, passcode, cost)
        return try build(
            context, set, format: format, identity: identity, generation: 1,
            policy: wanted.applied(to: KeybagPolicy(passcodeCost: cost)), passcode: stretched,
            effaceable: effaceable)
    }

    private static func stretch(
        _ context: KeybagContext, _ passcode: borrowing Passcode?, _ cost: Scrypt.Parameters
    ) throws(KeybagError) -> StretchedPasscode? {
        switch passcode {
        case .some(let passcode): try context.hierarchy.stretch(new: passcode, cost: cost)
        case .none: nil
        }
    }
}
