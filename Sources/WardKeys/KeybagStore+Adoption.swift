import WardCrypto
import WardFormat
import WardSystem

/// What adopting a copy of a volume did.
public struct Adoption: Equatable, Sendable {
    public let stateDirectory: StateDirectory
    /// Of the new keybag.
    public let generation: UInt64
    /// This device had keys for the volume, which opened its keybag: the policy is the one from
    /// before.
    public let keptPolicy: Bool
}

extension KeybagStore {
    /// Refuses an adoption that can't succeed or would destroy keys, before anybody is asked for
    /// anything. Changes nothing.
    ///
    /// `replacesDeviceKeys`: the owner says that keys which this device has for the volume may go.
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

    /// Makes the copy of a volume in `volumePath` this device's own: a device key, an effaceable
    /// key and a keybag with new slots, from the keys of a recovery kit. Nothing but the keybag and
    /// this device's files changes.
    ///
    /// The keybag of the copy may be of any passcode and generation, damaged, or missing. `cost`:
    /// of the passcode, and of those that follow. `policy`: what is to differ from the usual one;
    /// where this device could open the keybag, from its own. Whatever passcode opened this volume
    /// on this device opens it until the new one does; after a power cut adopting again finishes
    /// it. Attempts are forgotten: whoever has a kit and its code needs no more tries.
    ///
    /// Throws as `checkAdoption` does.
    public static func adopt(
        volumePath: String, stateRoot: String, keys: borrowing RecoveredKeys,
        passcode: borrowing Passcode?, cost: ScryptCost, policy: PolicyChange = PolicyChange(),
        replacesDeviceKeys: Bool
    ) throws(KeybagError) -> Adoption {
        try adopt(
            volumePath: volumePath, stateRoot: stateRoot, keys: keys, passcode: passcode,
            cost: cost, policy: policy, replacesDeviceKeys: replacesDeviceKeys,
            storage: DiskKeyStorage())
    }

    static func adopt(
        volumePath: String, stateRoot: String, keys: borrowing RecoveredKeys,
        passcode: borrowing Passcode?, cost: ScryptCost, policy: PolicyChange = PolicyChange(),
        replacesDeviceKeys: Bool, storage: any KeyStorage
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
        // The slow part without the lock.
        let cost = cost.parameters()
        let stretched: StretchedPasscode? =
            switch passcode {
            case .some(let passcode): try context.stretchWithoutDevice(passcode, cost: cost)
            case .none: nil
            }
        return try context.withLock { () throws(KeybagError) -> Adoption in
            // Looked at again: now nobody else changes it.
            let found = try keybagsOfCopy(context, keys.identity)
            if !replacesDeviceKeys { try requireNoDeviceKeys(context) }
            return try replaceKeys(context, keys, found, stretched, cost, policy)
        }
    }

    /// The sequence. The lock is held.
    ///
    /// Where this device has keys it is that of a change of the passcode (L7): the old effaceable
    /// key stays until the new keybag is in its place. Where it has none there is nothing that
    /// could be lost.
    private static func replaceKeys(
        _ context: KeybagContext, _ keys: borrowing RecoveredKeys, _ found: [Keybag],
        _ passcode: borrowing StretchedPasscode?, _ cost: Scrypt.Parameters,
        _ wanted: PolicyChange
    ) throws(KeybagError) -> Adoption {
        let before = try context.deviceStanding(found)
        try context.prepareDeviceKey()
        // Before the keybag: the last of ten tries, or none at all, must not be what the new
        // passcode begins with.
        try context.ledger.store(PasscodePolicy())
        var policy = before.policy ?? KeybagPolicy(passcodeCost: cost)
        policy.passcodeCost = cost
        policy = wanted.applied(to: policy)
        let remembered = try context.remembered()
        let generation = try context.generation(above: found, remembered, path: context.keybagPath)
        let fresh = try KeybagContext.randomKey(path: context.directory.path)
        let keybag = try build(
            context, keys.set, identity: keys.identity, generation: generation, policy: policy,
            passcode: passcode, effaceable: fresh)
        switch before.effaceableIndex {
        case .some(let index):
            // One of at most two that are there, so it is.
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
        // Their slots were sealed under the old one: worthless, and with names in them.
        try? context.trustedHosts.destroy()
        do throws(Errno) {
            try context.effaceable.wipeLeftover()
        } catch {
            throw .system(error, context.effaceable.path, "can't remove an old key")
        }
        // A reminder, which must not make what is done fail.
        try? context.recovery.noteAdopted(
            keys.kitID, made: keys.created, at: KeybagContext.secondsSinceEpoch)
        return Adoption(
            stateDirectory: context.directory, generation: keybag.generation,
            keptPolicy: before.policy != nil)
    }

    /// The keybags of the copy that can be read, none of them authentic as yet. Throws
    /// `kitOfAnotherVolume`, and `newerVersion` for one that must not be written over.
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

    /// Keys that this device has, finished, may be of the very volume that the copy was made of.
    private static func requireNoDeviceKeys(_ context: KeybagContext) throws(KeybagError) {
        let standing = try context.deviceStanding(try keybagsRead(context))
        // Without a remembered generation it is what an adoption left that did not get to its end.
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

/// What a device's files are good for, before an adoption.
private struct DeviceStanding {
    /// Which of the effaceable keys is to stay until the new keybag is in place; nil: there is none
    /// worth keeping.
    var effaceableIndex: Int?
    /// Of the keybag that the device's keys open.
    var policy: KeybagPolicy?
    var opens: Bool { policy != nil }
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
                    return DeviceStanding(effaceableIndex: index, policy: policy)
                }
                if standing.effaceableIndex == nil { standing.effaceableIndex = index }
            }
        } catch {
            switch error.code {
            // Lost, destroyed or garbled: nothing that anybody could miss.
            case .noDeviceKey, .erased, .damaged: return DeviceStanding()
            default: throw error
            }
        }
        return standing
    }

    /// The device key that is there, or a new one where it is missing or can't be used.
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

    /// One above all that are known. A keybag that nobody authenticated does not use them up.
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

    /// A new passcode stretched, which the device has no part in.
    fileprivate func stretchWithoutDevice(
        _ passcode: borrowing Passcode, cost: Scrypt.Parameters
    ) throws(KeybagError) -> StretchedPasscode {
        try hierarchy.stretch(new: passcode, cost: cost)
    }
}

extension KeybagStore {
    /// Whether a kit's keys are those of the volume in `volumePath`, as far as its keybag and this
    /// device know: the public key of class B and, where this device has keys that open the keybag,
    /// the volume key and class D's.
    ///
    /// Throws `kitOfAnotherVolume`; a keybag that this device can't open, or that is not there, is
    /// no mistake.
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
