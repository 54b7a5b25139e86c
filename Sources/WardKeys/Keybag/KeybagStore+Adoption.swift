import WardCrypto
import WardFormat
import WardSystem

/// The result of adopting a copy of a volume.
public struct Adoption: Equatable, Sendable {
    public let stateDirectory: StateDirectory
    /// The generation of the new keybag.
    public let generation: UInt64
    /// Whether this device's own keys opened the keybag, so that the earlier policy was kept.
    public let keptPolicy: Bool
}

extension KeybagStore {
    /// Refuses an adoption that can't succeed or would destroy keys, before the user is asked for
    /// secrets. Changes nothing.
    ///
    /// `replacesDeviceKeys`: the user agrees that the device's keys for the volume are replaced.
    /// Throws `kitOfAnotherVolume`, `deviceHasKeys`, `insideVolume`, `newerVersion`, `system`.
    public static func checkAdoption(
        volumePath: String, stateRoot: String, kit: RecoveryKit, replacesDeviceKeys: Bool
    ) throws(KeybagError) {
        let context = KeybagContext(
            volumePath: volumePath, stateRoot: stateRoot, uuid: kit.identity.parameters.uuid,
            storage: DiskKeyStorage(), clock: .system)
        try requireOutside(context)
        _ = try keybagsOfCopy(context, kit.identity)
        if !replacesDeviceKeys { try requireNoDeviceKeys(context) }
    }

    /// Makes the copy of a volume in `volumePath` this device's own. From the keys of a recovery
    /// kit it makes a device key, an effaceable key and a keybag with new slots. Only the keybag
    /// and this device's files change.
    ///
    /// The keybag of the copy may have any passcode and generation, be damaged or be missing. The
    /// passcode gets this `cost`, and so do later ones. The change `policy` is applied to the usual
    /// policy, or to this device's earlier one where the device can open the keybag. `format` is
    /// the one for which the keybag vouches (`FormatStanding.vouched`).
    ///
    /// Until the new passcode works, this device's earlier passcode still opens the volume. After a
    /// power cut, adopting again finishes the change. Counted attempts are forgotten: a user with a
    /// kit and its code needs no guesses.
    ///
    /// Throws the errors of `checkAdoption`.
    public static func adopt(
        volumePath: String, stateRoot: String, keys: borrowing RecoveredKeys,
        passcode: borrowing Passcode?, cost: ScryptCost, policy: PolicyChange = PolicyChange(),
        format: VolumeFormat, replacesDeviceKeys: Bool
    ) throws(KeybagError) -> Adoption {
        try adopt(
            volumePath: volumePath, stateRoot: stateRoot, keys: keys, passcode: passcode,
            cost: cost, policy: policy, format: format, replacesDeviceKeys: replacesDeviceKeys,
            storage: DiskKeyStorage())
    }

    static func adopt(
        volumePath: String, stateRoot: String, keys: borrowing RecoveredKeys,
        passcode: borrowing Passcode?, cost: ScryptCost, policy: PolicyChange = PolicyChange(),
        format: VolumeFormat, replacesDeviceKeys: Bool, storage: any KeyStorage
    ) throws(KeybagError) -> Adoption {
        let context = KeybagContext(
            volumePath: volumePath, stateRoot: stateRoot, uuid: keys.parameters.uuid,
            storage: storage, clock: .system)
        try requireOutside(context)
        _ = try keybagsOfCopy(context, keys.identity)
        do throws(Errno) {
            try storage.makeDirectory(context.directory.path)
        } catch {
            throw .system(error, context.directory.path, "can't make the state directory")
        }
        // The slow part runs without the lock.
        let cost = cost.parameters()
        let stretched: StretchedPasscode? =
            switch passcode {
            case .some(let passcode): try context.stretchWithoutDevice(passcode, cost: cost)
            case .none: nil
            }
        return try context.withLock { () throws(KeybagError) -> Adoption in
            // Read again under the lock, where no other process changes them.
            let found = try keybagsOfCopy(context, keys.identity)
            if !replacesDeviceKeys { try requireNoDeviceKeys(context) }
            return try replaceKeys(context, keys, found, format, stretched, cost, policy)
        }
    }

    /// Replaces the keys step by step. The caller holds the device's lock.
    ///
    /// Where this device has keys, the steps are those of a passcode change (L7). The old
    /// effaceable key stays until the new keybag is in its place. Where this device has none, no
    /// key could be lost.
    private static func replaceKeys(
        _ context: KeybagContext, _ keys: borrowing RecoveredKeys, _ found: [Keybag],
        _ format: VolumeFormat, _ passcode: borrowing StretchedPasscode?,
        _ cost: Scrypt.Parameters, _ wanted: PolicyChange
    ) throws(KeybagError) -> Adoption {
        let before = try context.deviceStanding(found)
        let kept = try context.authenticPolicy(before, keys.set, format)
        try context.prepareDeviceKey()
        // Before the keybag, so that the new passcode does not begin with the old count of
        // attempts, or without the file.
        try context.ledger.store(PasscodePolicy())
        var policy = kept ?? KeybagPolicy(passcodeCost: cost)
        policy.passcodeCost = cost
        policy = wanted.applied(to: policy)
        let remembered = try context.remembered()
        let generation = try context.generation(above: found, remembered, path: context.keybagPath)
        let fresh = try KeybagContext.randomKey(path: context.directory.path)
        let keybag = try build(
            context, keys.set, format: format, identity: keys.identity, generation: generation,
            policy: policy, passcode: passcode, effaceable: fresh)
        switch before.effaceableIndex {
        case .some(let index):
            // The index is that of a key found just before.
            guard let current = try context.effaceable.key(index) else {
                throw KeybagError(
                    .changedElsewhere, path: context.effaceable.path,
                    "the effaceable key was changed by another process meanwhile")
            }
            try context.effaceable.store(old: current, new: fresh)
        case .none: try context.effaceable.store(fresh)
        }
        try write(keybag, context)
        try context.remember(keybag.generation)
        if before.effaceableIndex != nil { try context.effaceable.store(fresh) }
        // The host slots were sealed under the old key and are worthless, but the file has names in
        // it.
        try? context.trustedHosts.destroy()
        do throws(Errno) {
            try context.effaceable.wipeLeftover()
        } catch {
            throw .system(error, context.effaceable.path, "can't remove an old key")
        }
        // The note is only a reminder: its failure must not fail the adoption.
        try? context.recovery.noteAdopted(
            keys.kitID, made: keys.created, at: KeybagContext.secondsSinceEpoch)
        return Adoption(
            stateDirectory: context.directory, generation: keybag.generation,
            keptPolicy: kept != nil)
    }

    /// The keybags of the copy that can be parsed, not authenticated yet. Throws
    /// `kitOfAnotherVolume`, and `newerVersion` for a keybag that must not be overwritten.
    private static func keybagsOfCopy(
        _ context: KeybagContext, _ identity: KeybagIdentity
    ) throws(KeybagError) -> [Keybag] {
        var found: [Keybag] = []
        for path in [context.keybagPath, context.copyPath] {
            let bytes: [UInt8]
            do throws(Errno) {
                bytes = try context.storage.readBytes(path, limit: Keybag.maximumBytes)
            } catch {
                switch error {
                case .noSuchFileOrDirectory, .invalidArgument, .tooManySymbolicLinkLevels,
                    .notDirectory:
                    continue
                default: throw .system(error, path, "can't read the keybag")
                }
            }
            let keybag: Keybag
            do throws(FormatError) {
                keybag = try Keybag(reading: bytes)
            } catch {
                if error.code == .newerVersion { throw .format(error, path) }
                continue
            }
            guard keybag.identity == identity else {
                let (theirs, ours) = (
                    keybag.identity.parameters.uuidString, identity.parameters.uuidString
                )
                throw KeybagError(
                    .kitOfAnotherVolume, path: path,
                    theirs == ours
                        ? "the recovery kit has other keys than this volume (both say \(ours))"
                        : "the recovery kit is of the volume \(ours), this is \(theirs)")
            }
            found.append(keybag)
        }
        return found
    }

    /// Throws where this device has complete keys: they may be those of the volume that was copied.
    private static func requireNoDeviceKeys(_ context: KeybagContext) throws(KeybagError) {
        let standing = try context.deviceStanding(try keybagsRead(context))
        // Without a remembered generation the keys are remains of an unfinished adoption.
        guard standing.effaceableIndex != nil, try context.remembered() != nil else { return }
        throw KeybagError(
            .deviceHasKeys(opensThis: standing.opens), path: context.directory.path,
            standing.opens
                ? "this device has keys for it already, and they open it"
                : "this device has keys for this volume already, which may open another copy of it")
    }

    private static func keybagsRead(_ context: KeybagContext) throws(KeybagError) -> [Keybag] {
        [context.keybagPath, context.copyPath].compactMap { path in
            guard
                let bytes = try? context.storage.readBytes(path, limit: Keybag.maximumBytes)
            else { return nil }
            return try? Keybag(reading: bytes)
        }
    }
}

/// The use of a device's files before an adoption.
private struct DeviceStanding {
    /// The index of the effaceable key to keep until the new keybag is in place; nil where no key
    /// is worth keeping.
    var effaceableIndex: Int?
    /// The keybag that the device's keys open, and its policy.
    var opened: (keybag: Keybag, policy: KeybagPolicy)?
    var opens: Bool { opened != nil }
}

extension KeybagContext {
    fileprivate func deviceStanding(_ found: [Keybag]) throws(KeybagError) -> DeviceStanding {
        var standing = DeviceStanding()
        do throws(KeybagError) {
            for index in 0..<KeyFile.maximumKeys {
                guard let key = try effaceable.key(index) else { break }
                let secret = try hierarchy.deviceSecret(effaceable: key)
                let policyKey = try hierarchy.policyKey(secret)
                for keybag in found {
                    guard let policy = try self.policy(of: keybag, policyKey: policyKey) else {
                        continue
                    }
                    return DeviceStanding(
                        effaceableIndex: index, opened: (keybag, policy))
                }
                if standing.effaceableIndex == nil { standing.effaceableIndex = index }
            }
        } catch {
            switch error.code {
            // These keys are lost, destroyed or garbled already, so replacing them loses nothing.
            case .noDeviceKey, .erased, .damaged: return DeviceStanding()
            default: throw error
            }
        }
        return standing
    }

    /// The policy to keep; nil where the device's keys open no keybag. In format 2 also nil where
    /// the kit's keys don't authenticate the policy: the device's files alone could have made it.
    fileprivate func authenticPolicy(
        _ standing: DeviceStanding, _ set: borrowing KeybagKeySet, _ format: VolumeFormat
    ) throws(KeybagError) -> KeybagPolicy? {
        guard let (keybag, policy) = standing.opened else { return nil }
        if format == .version1 { return policy }
        guard keybag.format == format, let index = standing.effaceableIndex,
            let key = try effaceable.key(index)
        else { return nil }
        let secret = try hierarchy.deviceSecret(effaceable: key)
        let policyKey = try hierarchy.policyKey(secret)
        return try isPolicyForged(in: keybag, set, policyKey: policyKey) ? nil : policy
    }

    /// Keeps the device key, or makes a new one where it is missing or can't be used.
    fileprivate func prepareDeviceKey() throws(KeybagError) {
        let provider = FileDeviceKeyProvider(
            path: directory.deviceKeyPath, volumeUUID: uuid, storage: storage)
        guard let probe = try? SecretBytes(zeroed: 32) else { throw .noLockedMemory(keybagPath) }
        do throws(KeybagError) {
            _ = try provider.entangle(probe, purpose: "ward probe")
            return
        } catch {
            switch error.code {
            case .noDeviceKey: break
            case .damaged:
                do throws(Errno) {
                    try storage.destroySecret(directory.deviceKeyPath)
                } catch {
                    throw .system(
                        error, directory.deviceKeyPath, "can't remove the damaged device key")
                }
            default: throw error
            }
        }
        try provider.create()
    }

    /// One above all known generations. An unauthenticated keybag can't use them up: high numbers
    /// are ignored.
    fileprivate func generation(
        above found: [Keybag], _ remembered: UInt64?, path: String
    ) throws(KeybagError) -> UInt64 {
        let credible = found.map(\.generation).filter { $0 < 1 << 62 }
        let last = (credible + [remembered ?? 0]).max()!
        guard last < .max else {
            throw KeybagError(.damaged, path: path, "there is no generation after \(last)")
        }
        return last + 1
    }

    /// Stretches a new passcode; the device key has no part in that.
    fileprivate func stretchWithoutDevice(
        _ passcode: borrowing Passcode, cost: Scrypt.Parameters
    ) throws(KeybagError) -> StretchedPasscode {
        try hierarchy.stretch(new: passcode, cost: cost)
    }
}

extension KeybagStore {
    /// Compares a kit's keys with those of the volume in `volumePath`, as far as its keybag and
    /// this device know them. That is the public key of class B; where this device opens the
    /// keybag, also the volume key and class D's key.
    ///
    /// Throws `kitOfAnotherVolume`. A keybag that is missing, or that this device can't open, is no
    /// error.
    public static func compare(
        _ keys: borrowing RecoveredKeys, volumePath: String, stateRoot: String
    ) throws(KeybagError) {
        let context = KeybagContext(
            volumePath: volumePath, stateRoot: stateRoot, uuid: keys.parameters.uuid,
            storage: DiskKeyStorage(), clock: .system)
        _ = try keybagsOfCopy(context, keys.identity)
        guard let store = try? KeybagStore(volumePath: volumePath, stateRoot: stateRoot) else {
            return
        }
        let own = try store.deviceSet()
        let isSame: Bool
        do throws(Errno) {
            isSame =
                try own.serialized([.volumeKey, .classD])
                == (try keys.set.serialized([.volumeKey, .classD]))
        } catch {
            throw .noLockedMemory(volumePath)
        }
        guard isSame else {
            throw KeybagError(
                .kitOfAnotherVolume, path: context.keybagPath,
                "the recovery kit has other keys than this volume")
        }
    }
}
