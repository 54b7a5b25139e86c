import WardCrypto
import WardFormat
import WardSystem

/// Chooses the valid keybag of the two copies, and finishes changes that a power cut interrupted.
struct KeybagLoader {
    let volumePath: String
    let stateRoot: String
    let storage: any KeyStorage
    let clock: DeviceClock
    /// Takes an authentic keybag that is older than the remembered generation: the user says that
    /// this was a restore.
    let acceptsOlderGeneration: Bool

    struct Loaded {
        var context: KeybagContext
        var keybag: Keybag
        var policy: KeybagPolicy
        /// Faults that were found and repaired, for the log.
        var notes: [String]
    }

    /// One of the two files, judged.
    private enum Candidate {
        case absent
        case unusable(KeybagError)
        case authentic(Keybag, KeybagPolicy, KeybagContext, effaceableIndex: Int)
    }

    func load() throws(KeybagError) -> Loaded {
        let primaryPath = KeybagContext.path(volumePath, Keybag.fileName)
        let copyPath = KeybagContext.path(volumePath, Keybag.copyFileName)
        // The lock is in the state directory, and its name comes from the keybag: look, lock, look
        // again.
        let context = try contextToLock(primaryPath, copyPath)
        return try context.withLock { () throws(KeybagError) -> Loaded in
            let primary = try candidate(primaryPath)
            let copy = try candidate(copyPath)
            guard
                case .authentic(let keybag, let policy, let context, let index) = try choose(
                    primary, copy)
            else { preconditionFailure("choose returns what opens") }
            var loaded = Loaded(context: context, keybag: keybag, policy: policy, notes: [])
            recover(&loaded, primary, copy, effaceableIndex: index)
            return loaded
        }
    }

    /// The valid keybag, without a lock and without repairs. `effaceableIndex` says which key in
    /// `effaceable.key` opens it.
    func peek() throws(KeybagError) -> (Keybag, KeybagContext, effaceableIndex: Int) {
        let primary = try candidate(KeybagContext.path(volumePath, Keybag.fileName))
        let copy = try candidate(KeybagContext.path(volumePath, Keybag.copyFileName))
        guard case .authentic(let keybag, _, let context, let index) = try choose(primary, copy)
        else { preconditionFailure("choose returns what opens") }
        return (keybag, context, index)
    }

    /// The faults of the two files, by path; changes nothing. Throws where neither file opens.
    func problems() throws(KeybagError) -> [(path: String, problem: String)] {
        let paths = [
            KeybagContext.path(volumePath, Keybag.fileName),
            KeybagContext.path(volumePath, Keybag.copyFileName),
        ]
        return try contextToLock(paths[0], paths[1]).withLock { () throws(KeybagError) in
            let candidates = [try candidate(paths[0]), try candidate(paths[1])]
            guard case .authentic(let chosen, _, _, _) = try choose(candidates[0], candidates[1])
            else { preconditionFailure("choose returns what opens") }
            var problems: [(path: String, problem: String)] = []
            for (path, candidate) in zip(paths, candidates) {
                switch candidate {
                case .absent: problems.append((path, "it is missing"))
                case .unusable(let error): problems.append((path, error.reason))
                case .authentic(let keybag, _, _, _):
                    if keybag != chosen { problems.append((path, "a change was interrupted")) }
                }
            }
            return problems
        }
    }

    /// The context of the keybag that opens at a first look. During another process's change it may
    /// be that no keybag opens. Then it is the context of the UUID in the keybag, authentic or not.
    private func contextToLock(
        _ primaryPath: String, _ copyPath: String
    ) throws(KeybagError) -> KeybagContext {
        let primary = try candidate(primaryPath)
        let copy = try candidate(copyPath)
        do throws(KeybagError) {
            guard case .authentic(_, _, let context, _) = try choose(primary, copy) else {
                preconditionFailure("choose returns what opens")
            }
            return context
        } catch {
            for path in [primaryPath, copyPath] {
                guard let bytes = try? storage.readBytes(path, limit: Keybag.maximumBytes),
                    let keybag = try? Keybag(reading: bytes)
                else { continue }
                return KeybagContext(
                    volumePath: volumePath, stateRoot: stateRoot,
                    uuid: keybag.identity.parameters.uuid, storage: storage, clock: clock)
            }
            throw error
        }
    }

    private func candidate(_ path: String) throws(KeybagError) -> Candidate {
        let bytes: [UInt8]
        do throws(Errno) {
            bytes = try storage.readBytes(path, limit: Keybag.maximumBytes)
        } catch {
            switch error {
            case .noSuchFileOrDirectory, .notDirectory: return .absent
            default: return .unusable(.system(error, path, "can't read the keybag"))
            }
        }
        let keybag: Keybag
        do throws(FormatError) {
            keybag = try Keybag(reading: bytes)
        } catch {
            // This file is whole and of a later version: the other copy must not replace it.
            if error.code == .newerVersion { throw .format(error, path) }
            return .unusable(.format(error, path))
        }
        do throws(KeybagError) {
            return try authenticate(keybag, path)
        } catch {
            return .unusable(error)
        }
    }

    private func authenticate(_ keybag: Keybag, _ path: String) throws(KeybagError) -> Candidate {
        let context = KeybagContext(
            volumePath: volumePath, stateRoot: stateRoot, uuid: keybag.identity.parameters.uuid,
            storage: storage, clock: clock)
        try requireDeviceKey(context)
        let remembered = try context.remembered() ?? 0
        let isOlder = keybag.generation < remembered
        for index in 0..<KeyFile.maximumKeys {
            guard let key = try context.effaceable.key(index) else { break }
            let secret = try context.hierarchy.deviceSecret(effaceable: key)
            let policyKey = try context.hierarchy.policyKey(secret)
            guard let policy = try context.policy(of: keybag, policyKey: policyKey) else {
                continue
            }
            if isOlder && !acceptsOlderGeneration { break }
            return .authentic(keybag, policy, context, effaceableIndex: index)
        }
        if isOlder {
            throw KeybagError(
                .replayed(generation: keybag.generation, remembered: remembered), path: path,
                "this keybag is older (generation \(keybag.generation)) than the one this device "
                    + "wrote last (\(remembered))")
        }
        throw KeybagError(
            .damaged, path: path, "the keybag does not authenticate with this device's keys")
    }

    /// Throws `noDeviceKey` first for a volume that was copied to this device.
    private func requireDeviceKey(_ context: KeybagContext) throws(KeybagError) {
        guard let probe = try? SecretBytes(zeroed: 32) else {
            throw .noLockedMemory(context.keybagPath)
        }
        _ = try context.device.entangle(probe, purpose: "ward probe")
    }

    /// The first candidate if it opens, else the second. If neither opens, throws the more useful
    /// error.
    private func choose(
        _ first: Candidate, _ second: Candidate
    ) throws(KeybagError) -> Candidate {
        switch (first, second) {
        case (.authentic, _): return first
        case (_, .authentic): return second
        case (.unusable(let error), .absent), (.absent, .unusable(let error)): throw error
        case (.unusable(let error), .unusable(let other)):
            throw error.code == .damaged ? other : error
        case (.absent, .absent):
            throw KeybagError(
                .notAVolume, path: volumePath, "there is no \(Keybag.fileName) in this directory")
        }
    }

    /// Finishes an interrupted change, and replaces a bad copy. A failed write (on a read-only
    /// store) is only noted: the next opening tries again.
    private func recover(
        _ loaded: inout Loaded, _ primary: Candidate, _ copy: Candidate, effaceableIndex: Int
    ) {
        let context = loaded.context
        let bytes = loaded.keybag.serialized
        do throws(KeybagError) {
            for (path, candidate) in [(context.keybagPath, primary), (context.copyPath, copy)] {
                if case .authentic(let keybag, _, _, _) = candidate, keybag == loaded.keybag {
                    continue
                }
                do throws(Errno) {
                    try storage.replace(path, with: bytes, isPublic: true)
                } catch {
                    throw .system(error, path, "can't replace the keybag")
                }
                switch candidate {
                case .absent: loaded.notes.append("\(path): was missing, replaced")
                case .unusable(let error): loaded.notes.append("\(error), replaced")
                case .authentic: loaded.notes.append("\(path): an interrupted change was finished")
                }
            }
            if try context.remembered() != loaded.keybag.generation {
                try context.remember(loaded.keybag.generation)
            }
            if try context.effaceable.key(1) != nil,
                let current = try context.effaceable.key(effaceableIndex)
            {
                try context.effaceable.store(current)
                loaded.notes.append(
                    "\(context.effaceable.path): an interrupted change was finished")
            }
            do throws(Errno) {
                try context.effaceable.wipeLeftover()
            } catch {
                throw .system(error, context.effaceable.path, "can't remove an old key")
            }
        } catch {
            loaded.notes.append("\(error); not repaired")
        }
    }
}
