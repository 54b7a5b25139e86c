import WardCrypto
import WardFormat
import WardSystem

extension KeybagStore {
    /// Opens the passcode slot: classes A, B, C and CX into the keyring.
    ///
    /// The attempt is counted on disk before it is judged (L5); the same wrong passcode again does not count. Throws
    /// `wrongPasscode`, `tryLater`, `disabled`, `noPasscodeSet`; `erased` where this was the tenth and erasing is on.
    public func openPasscodeSlot(
        _ passcode: borrowing Passcode, into keyring: ClassKeyring
    ) throws(KeybagError) {
        try operations.withLock { wrong throws(KeybagError) in
            let set = try judge(passcode, &wrong)
            try KeybagContext.install(set, into: keyring, path: context.keybagPath)
        }
    }

    /// The daemon started: a delay that still runs begins again (L6).
    public func restartPasscodeDelay() throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            try context.withLock { () throws(KeybagError) in
                let before = try context.ledger.load()
                var attempts = before
                attempts.restart(now: context.clock.now())
                if attempts != before { try context.ledger.store(attempts) }
                published.withLock { $0.attempts = attempts }
            }
        }
    }

    /// Sets the first passcode: existing files of classes A, B, C and CX are protected by it at once. No file is touched.
    ///
    /// `cost`: by default what was chosen when the volume was made. Throws `passcodeAlreadySet`.
    public func setPasscode(
        _ passcode: borrowing Passcode, cost: ScryptCost? = nil
    ) throws(KeybagError) {
        try operations.withLock { wrong throws(KeybagError) in
            guard !hasPasscode else {
                throw KeybagError(
                    .passcodeAlreadySet, path: volumePath, "the volume has a passcode already")
            }
            let set = try deviceSet()
            try reseal(set, under: try stretch(new: passcode, cost), &wrong)
        }
    }

    /// Replaces the passcode, in time independent of the number of files. Copies of the keybag made before open nothing
    /// afterwards (L7).
    public func changePasscode(
        _ old: borrowing Passcode, to new: borrowing Passcode, cost: ScryptCost? = nil
    ) throws(KeybagError) {
        try operations.withLock { wrong throws(KeybagError) in
            var set = try judge(old, &wrong)
            set.formUnion(try deviceSet())
            try reseal(set, under: try stretch(new: new, cost), &wrong)
        }
    }

    /// Removes the passcode: the device alone opens everything (S0).
    public func removePasscode(_ old: borrowing Passcode) throws(KeybagError) {
        try operations.withLock { wrong throws(KeybagError) in
            var set = try judge(old, &wrong)
            set.formUnion(try deviceSet())
            try reseal(set, under: nil, &wrong)
        }
    }

    /// Stores another policy: grace period, CX period, erase flag.
    public func setPolicy(_ wanted: KeybagPolicy) throws(KeybagError) {
        // As it will be read: whole milliseconds and seconds.
        guard let policy = try? KeybagPolicy(reading: wanted.serialized) else {
            preconditionFailure("a policy reads back")
        }
        try operations.withLock { _ throws(KeybagError) in
            try context.withLock { () throws(KeybagError) in
                try requireUnchanged()
                var keybag = published.withLock { $0.keybag }
                let effaceable = try currentEffaceable(of: keybag)
                let secret = try context.hierarchy.deviceSecret(effaceable: effaceable)
                keybag.generation += 1
                let policyKey = try context.hierarchy.policyKey(secret)
                keybag = try context.finish(keybag, policy, policyKey: policyKey)
                try writeKeybags(keybag)
                try context.remember(keybag.generation)
                publish(keybag, policy)
            }
        }
    }

    // MARK: Judging

    /// The set of the passcode slot, or why not. The caller holds `operations`.
    func judge(
        _ passcode: borrowing Passcode, _ wrong: inout WrongTags
    ) throws(KeybagError) -> KeybagKeySet {
        let keybag = published.withLock { $0.keybag }
        guard let slot = keybag.passcodeSlot, let derivation = slot.derivation else {
            throw KeybagError(.noPasscodeSet, path: volumePath, "the volume has no passcode")
        }
        try requireAttempt(try context.ledger.load())
        let stretched = try context.hierarchy.stretch(passcode, derivation)
        let effaceable = try currentEffaceable(of: keybag)
        let entangled = try context.hierarchy.entangled(stretched, effaceable: effaceable)
        let tag = try context.hierarchy.wrongPasscodeTag(entangled)
        if wrong.contains(tag) { throw wrongPasscode(attempts) }
        let attempts = try context.withLock { () throws(KeybagError) -> PasscodePolicy in
            var attempts = try context.ledger.load()
            try requireAttempt(attempts)
            attempts.count(now: context.clock.now())
            try context.ledger.store(attempts)
            return attempts
        }
        published.withLock { $0.attempts = attempts }
        let kek = try context.hierarchy.passcodeKEK(entangled)
        if let set = try context.open(slot, kek: kek, identity: keybag.identity) {
            guard set.contains(.passcodeClasses) else {
                throw KeybagError(
                    .damaged, path: context.keybagPath, "the passcode slot is incomplete")
            }
            wrong.forget()
            forgetAttempts()
            return set
        }
        if attempts.triesLeft == 0, policy.erasesAfterTenWrongPasscodes {
            try context.withLock { () throws(KeybagError) in try context.effaceable.destroy() }
            throw KeybagError(
                .erased, path: volumePath, "ten wrong passcodes: the volume has been erased")
        }
        wrong.add(tag)
        throw wrongPasscode(attempts)
    }

    private func requireAttempt(_ attempts: PasscodePolicy) throws(KeybagError) {
        published.withLock { $0.attempts = attempts }
        switch attempts.verdict(now: context.clock.now()) {
        case .allowed: break
        case .tryLater(let wait):
            throw KeybagError(
                .tryLater(wait), path: volumePath,
                "\(attempts.wrongPasscodes) wrong passcodes: the next try is in "
                    + "\(wait.components.seconds + 1) seconds")
        case .disabled:
            throw KeybagError(
                .disabled, path: volumePath,
                "\(attempts.wrongPasscodes) wrong passcodes: only a recovery kit opens it")
        }
    }

    private func wrongPasscode(_ attempts: PasscodePolicy) -> KeybagError {
        KeybagError(
            .wrongPasscode(triesLeft: attempts.triesLeft), path: volumePath, "wrong passcode")
    }

    /// A failure to write it down makes the next unlock count from too many; it must not make this one fail.
    private func forgetAttempts() {
        published.withLock { $0.attempts.reset() }
        try? context.withLock { () throws(KeybagError) in
            try context.ledger.store(PasscodePolicy())
        }
    }

    // MARK: Changing

    private func stretch(
        new passcode: borrowing Passcode, _ cost: ScryptCost?
    ) throws(KeybagError) -> StretchedPasscode {
        try context.hierarchy.stretch(
            new: passcode, cost: cost?.parameters() ?? policy.passcodeCost)
    }

    /// Seals `set` anew under a new effaceable key, with or without a passcode: the sequence of L7.
    ///
    /// state {old, new} → keybag → its copy → remembered generation → state {new}, each durable before the next. Until
    /// the keybag's rename the old passcode opens, from then on the new one; opening the store finishes the rest.
    private func reseal(
        _ set: borrowing KeybagKeySet, under passcode: consuming StretchedPasscode?,
        _ wrong: inout WrongTags
    ) throws(KeybagError) {
        let (old, policyBefore) = published.withLock { ($0.keybag, $0.policy) }
        var policy = policyBefore
        if let cost = passcode?.derivation.cost { policy.passcodeCost = cost }
        let fresh = try KeybagContext.randomKey(path: context.keybagPath)
        let keybag = try KeybagStore.build(
            context, set, identity: old.identity, generation: old.generation + 1, policy: policy,
            passcode: passcode, effaceable: fresh)
        try context.withLock { () throws(KeybagError) in
            try requireUnchanged()
            let current = try currentEffaceable(of: old)
            do throws(KeybagError) {
                try context.effaceable.store(old: current, new: fresh)
                try writeKeybags(keybag)
                try context.remember(keybag.generation)
                try context.effaceable.store(fresh)
            } catch {
                try settle(after: error, keybag, policy)
            }
        }
        publish(keybag, policy)
        wrong.forget()
        forgetAttempts()
    }

    /// A write of the sequence failed: whichever keybag is in place counts from now on. Returns where that is the new
    /// one and all is finished; else throws.
    private func settle(
        after error: KeybagError, _ keybag: Keybag, _ policy: KeybagPolicy
    ) throws(KeybagError) {
        let bytes = try? context.storage.readBytes(context.keybagPath, limit: Keybag.maximumBytes)
        guard bytes == keybag.serialized else {
            // The old one: take the new effaceable key back. Where that fails the next opening does.
            let old = published.withLock { $0.keybag }
            if let current = try? currentEffaceable(of: old) {
                try? context.effaceable.store(current)
            }
            throw error
        }
        publish(keybag, policy)
        let reason = "the change took effect, but is not finished (\(error.reason))"
        throw KeybagError(error.code, path: error.path, reason)
    }

    /// Refuses to overwrite what another process wrote. The caller holds the device's lock.
    private func requireUnchanged() throws(KeybagError) {
        let generation = generation
        guard
            let bytes = try? context.storage.readBytes(
                context.keybagPath, limit: Keybag.maximumBytes),
            let onDisk = try? Keybag(reading: bytes)
        else { return }
        guard onDisk.generation == generation else {
            throw KeybagError(
                .changedElsewhere, path: context.keybagPath,
                "the keybag was changed by another process meanwhile")
        }
    }

    private func writeKeybags(_ keybag: Keybag) throws(KeybagError) {
        try KeybagStore.write(keybag, context)
    }

    private func publish(_ keybag: Keybag, _ policy: KeybagPolicy) {
        published.withLock {
            $0.keybag = keybag
            $0.policy = policy
        }
    }

    // MARK: Shared with creation

    /// A finished keybag: `set` in the device slot, or split between it and a passcode slot.
    static func build(
        _ context: KeybagContext, _ set: borrowing KeybagKeySet, identity: KeybagIdentity,
        generation: UInt64, policy: KeybagPolicy, passcode: borrowing StretchedPasscode?,
        effaceable: borrowing SecretBytes
    ) throws(KeybagError) -> Keybag {
        let hierarchy = context.hierarchy
        let deviceSecret = try hierarchy.deviceSecret(effaceable: effaceable)
        let deviceKEK = try hierarchy.deviceKEK(deviceSecret)
        var deviceContents: KeybagKeySet.Contents = [.volumeKey, .classD]
        var passcodeSlot: KeybagSlot?
        switch passcode {
        case .none: deviceContents.insert(.passcodeClasses)
        case .some(let passcode):
            let entangled = try hierarchy.entangled(passcode.secret, effaceable: effaceable)
            let kek = try hierarchy.passcodeKEK(entangled)
            passcodeSlot = try context.seal(
                set, .passcodeClasses, kek: kek, identity: identity, kind: .passcode,
                derivation: passcode.derivation)
        }
        let deviceSlot = try context.seal(
            set, deviceContents, kek: deviceKEK, identity: identity, kind: .device)
        let keybag = Keybag(
            identity: identity, generation: generation, deviceSlot: deviceSlot,
            passcodeSlot: passcodeSlot)
        let policyKey = try hierarchy.policyKey(deviceSecret)
        let finished = try context.finish(keybag, policy, policyKey: policyKey)
        // The other half of a pair: what is about to replace the only keybag must open.
        let again = try? Keybag(reading: finished.serialized)
        precondition(again == finished, "a keybag reads back as it was written")
        let opened = try context.policy(of: finished, policyKey: policyKey)
        precondition(opened == policy, "a keybag opens with the keys it was sealed with")
        return finished
    }

    /// Both copies, one durably after the other.
    static func write(_ keybag: Keybag, _ context: KeybagContext) throws(KeybagError) {
        for path in [context.keybagPath, context.copyPath] {
            do throws(Errno) {
                try context.storage.replace(path, with: keybag.serialized, isPublic: true)
            } catch {
                throw .system(error, path, "can't write the keybag")
            }
        }
    }
}

extension KeybagStore.WrongTags {
    /// Compares with every tag, in constant time each.
    func contains(_ tag: borrowing SecretBytes) -> Bool {
        switch tags {
        case .some(let tags):
            for index in 0..<count {
                if let known = try? tags.slice(index * 32..<(index + 1) * 32), known == tag {
                    return true
                }
            }
            return false
        case .none: return false
        }
    }

    /// Without room for it the same wrong passcode would count again: no harm.
    mutating func add(_ tag: borrowing SecretBytes) {
        if tags == nil {
            tags = try? SecretBytes(zeroed: PasscodePolicy.maximumWrongPasscodes * 32)
        }
        guard count < PasscodePolicy.maximumWrongPasscodes, tags != nil else { return }
        let at = count * 32
        tags!.withUnsafeMutableBytes { out in
            tag.withUnsafeBytes { out[at..<at + 32].copyBytes(from: $0) }
        }
        count += 1
    }

    mutating func forget() {
        tags = nil
        count = 0
    }
}
