import WardCrypto
import WardFormat
import WardSystem

extension KeybagStore {
    /// Opens the passcode slot: installs classes A, B, C and CX into the keyring.
    ///
    /// The attempt is counted on disk before it is judged (L5). The same wrong passcode again does
    /// not count, in any process and also after a restart. Throws `wrongPasscode`, `tryLater`,
    /// `disabled`, `noPasscodeSet`; `erased` where this was the tenth and erasing is on.
    public func openPasscodeSlot(
        _ passcode: borrowing Passcode, into keyring: ClassKeyring
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            let set = try judge(passcode)
            try KeybagContext.install(set, into: keyring, path: context.keybagPath)
        }
    }

    /// Restarts a delay that still runs, when the daemon starts (L6).
    public func restartPasscodeDelay() throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            guard hasPasscode else { return }
            try context.withLock { () throws(KeybagError) in
                let before = try context.ledger.settled()
                var attempts = before
                attempts.restart(now: context.clock.now())
                if attempts != before { try context.ledger.store(attempts) }
                published.withLock { $0.attempts = attempts }
            }
        }
    }

    /// Records a finished delay as finished, when the daemon ends. A restart restarts only a delay
    /// that still ran (L6), and the clock of the next boot can't tell that.
    public func notePasscodeDelay() throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            guard hasPasscode else { return }
            try context.withLock { () throws(KeybagError) in
                var attempts = try context.ledger.settled()
                guard attempts.endDelay(now: context.clock.now()) else { return }
                try context.ledger.store(attempts)
                published.withLock { $0.attempts = attempts }
            }
        }
    }

    /// Sets the first passcode. It protects existing files of classes A, B, C and CX at once; no
    /// file is changed.
    ///
    /// `cost` is calibrated by default (`costOfNextPasscode`). Throws `passcodeAlreadySet`.
    public func setPasscode(
        _ passcode: borrowing Passcode, cost: ScryptCost? = nil
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            guard !hasPasscode else {
                throw KeybagError(
                    .passcodeAlreadySet, path: volumePath, "the volume has a passcode already")
            }
            let set = try deviceSet()
            try reseal(set, under: try stretch(new: passcode, cost))
        }
    }

    /// Replaces the passcode; the time does not depend on the number of files. Older copies of the
    /// keybag open nothing afterwards (L7). All hosts lose their trust; returns their names.
    ///
    /// `cost` is calibrated by default (`costOfNextPasscode`).
    @discardableResult
    public func changePasscode(
        _ old: borrowing Passcode, to new: borrowing Passcode, cost: ScryptCost? = nil
    ) throws(KeybagError) -> [String] {
        try operations.withLock { _ throws(KeybagError) in
            var set = try judge(old)
            set.formUnion(try deviceSet())
            return try reseal(set, under: try stretch(new: new, cost))
        }
    }

    /// Removes the passcode: the device alone opens everything (S0). All hosts lose their trust;
    /// returns their names.
    @discardableResult
    public func removePasscode(_ old: borrowing Passcode) throws(KeybagError) -> [String] {
        try operations.withLock { _ throws(KeybagError) in
            var set = try judge(old)
            set.formUnion(try deviceSet())
            return try reseal(set, under: nil)
        }
    }

    // MARK: Judging

    /// Judges a passcode: returns the key set of the passcode slot, or throws. The caller holds
    /// `operations`.
    ///
    /// For other processes, counting, judging and forgetting are one step: each attempt counts
    /// once, one after the other. Only the slow part runs before.
    func judge(_ passcode: borrowing Passcode) throws(KeybagError) -> KeybagKeySet {
        let keybag = published.withLock { $0.keybag }
        guard let slot = keybag.passcodeSlot, let derivation = slot.derivation else {
            throw KeybagError(.noPasscodeSet, path: volumePath, "the volume has no passcode")
        }
        // Refuse before the slow part where the passcode would not be judged.
        let before = try attemptsOnDisk()
        // The tenth attempt was judged wrong, but the erase did not finish then.
        if before.isExhausted, policy.erasesAfterTenWrongPasscodes {
            try context.withLock { () throws(KeybagError) in try context.erase() }
            throw .erasedAfterTen(volumePath)
        }
        if before.pendingTag == nil {
            try refuse(before, before.verdict(now: context.clock.now()))
        }
        let stretched = try context.hierarchy.stretch(passcode, derivation)
        return try context.withLock { () throws(KeybagError) -> KeybagKeySet in
            let effaceable = try currentEffaceable(of: keybag)
            let entangled = try context.hierarchy.entangled(stretched, effaceable: effaceable)
            // Nothing is read after the attempt is counted: where a disk fails then, the right
            // passcode opens even so.
            let policyKey = try self.policyKey(effaceable)
            try count(try context.hierarchy.wrongPasscodeTag(entangled, slot, of: keybag))
            let kek = try context.hierarchy.passcodeKEK(entangled)
            guard let set = try context.open(slot, of: keybag, kek: kek) else {
                throw try judgedWrong()
            }
            guard set.contains(.passcodeClasses) else {
                throw KeybagError(
                    .damaged, path: context.keybagPath, "the passcode slot is incomplete")
            }
            forgetAttempts()
            try judgePolicy(of: keybag, set, policyKey: policyKey)
            return set
        }
    }

    private func attemptsOnDisk() throws(KeybagError) -> PasscodePolicy {
        let (attempts, needsStoring) = try context.ledger.load()
        guard needsStoring else { return attempts }
        // Stored now, so that the restarted delay has one begin even where no attempt is written.
        return try context.withLock { () throws(KeybagError) in try context.ledger.settled() }
    }

    /// Writes the attempt down, or throws why it is not judged. The caller holds the device's lock.
    private func count(_ tag: borrowing SecretBytes) throws(KeybagError) {
        let shortTag = tag.withUnsafeBytes { [UInt8]($0[..<AttemptRecord.tagBytes]) }
        let loaded = try context.ledger.load()
        var attempts = loaded.policy
        let admission = attempts.admit(shortTag, now: context.clock.now())
        if loaded.needsStoring || admission == .judge(isNew: true) {
            try context.ledger.store(attempts)
        }
        published.withLock { $0.attempts = attempts }
        switch admission {
        case .judge: break
        case .knownWrong: throw wrongPasscode(attempts)
        case .tryLater(let wait): try refuse(attempts, .tryLater(wait))
        case .disabled: try refuse(attempts, .disabled)
        }
    }

    /// The error for the wrong passcode just counted; erases after the tenth. The caller holds the
    /// device's lock.
    private func judgedWrong() throws(KeybagError) -> KeybagError {
        var attempts = published.withLock { $0.attempts }
        attempts.judgedWrong()
        try context.ledger.store(attempts)
        published.withLock { $0.attempts = attempts }
        guard attempts.isExhausted, policy.erasesAfterTenWrongPasscodes else {
            return wrongPasscode(attempts)
        }
        try context.erase()
        return .erasedAfterTen(volumePath)
    }

    private func refuse(
        _ attempts: PasscodePolicy, _ verdict: PasscodePolicy.Verdict
    ) throws(KeybagError) {
        published.withLock { $0.attempts = attempts }
        switch verdict {
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

    /// Forgets the attempts after the right passcode. Must not fail: where the write fails, the
    /// count only stays too high. The caller holds the device's lock.
    private func forgetAttempts() {
        let before = published.withLock { published in
            defer { published.attempts.reset() }
            return published.attempts
        }
        if before != PasscodePolicy() { try? context.ledger.store(PasscodePolicy()) }
    }

    // MARK: Changing

    func stretch(
        new passcode: borrowing Passcode, _ cost: ScryptCost?
    ) throws(KeybagError) -> StretchedPasscode {
        try context.hierarchy.stretch(
            new: passcode, cost: cost?.parameters() ?? costOfNextPasscode)
    }

    /// Seals `set` anew under a new effaceable key, with or without a passcode: the sequence of L7.
    ///
    /// state {old, new} → keybag → its copy → remembered generation → state {new}; each step is
    /// durable before the next. Until the keybag's rename the old passcode opens, after it the new
    /// one. After a power cut, opening the store finishes the rest.
    ///
    /// Trusted hosts are removed with the old effaceable key; returns their names. A change of the
    /// policy alone (`policy`) keeps them. Then their slots are sealed anew into a second file,
    /// which replaces the first when the new keybag is in place. `format` is a new one of the
    /// volume.
    @discardableResult
    func reseal(
        _ set: borrowing KeybagKeySet, under passcode: consuming StretchedPasscode?,
        policy changed: KeybagPolicy? = nil, format: VolumeFormat? = nil
    ) throws(KeybagError) -> [String] {
        let (old, policyBefore) = published.withLock { ($0.keybag, $0.policy) }
        var policy = changed ?? policyBefore
        if let cost = passcode?.derivation.cost ?? old.passcodeSlot?.derivation?.cost {
            policy.passcodeCost = cost
        }
        let fresh = try KeybagContext.randomKey(path: context.keybagPath)
        let keybag = try KeybagStore.build(
            context, set, format: format ?? old.format, identity: old.identity,
            generation: old.generation + 1, policy: policy, passcode: passcode, effaceable: fresh)
        return try hostChanges.withLock { _ throws(KeybagError) in
            try context.withLock { () throws(KeybagError) in
                try requireUnchanged()
                let current = try currentEffaceable(of: old)
                let carried = changed == nil ? nil : try hostsResealed(set, current, fresh)
                do throws(KeybagError) {
                    try context.effaceable.store(old: current, new: fresh)
                    try storeNextHosts(carried, fresh)
                    try writeKeybags(keybag)
                    try context.remember(keybag.generation)
                    try context.effaceable.store(fresh)
                } catch {
                    try settle(after: error, keybag, policy, carried)
                }
                publish(keybag, policy)
                // Tags of the old effaceable key match nothing any more. Also makes a lost file
                // again.
                published.withLock { $0.attempts.reset() }
                try? context.ledger.store(PasscodePolicy())
                return replaceHosts(by: carried)
            }
        }
    }

    /// Called after a write of the sequence failed: the keybag that is in place counts from now on.
    /// Throws in any case.
    private func settle(
        after error: KeybagError, _ keybag: Keybag, _ policy: KeybagPolicy,
        _ carried: TrustedHostList?
    ) throws(KeybagError) {
        let bytes = try? context.storage.readBytes(context.keybagPath, limit: Keybag.maximumBytes)
        guard bytes == keybag.serialized else {
            // The old keybag is in place: drop the new effaceable key; where that fails, the next
            // opening does it. Where the keybag can't be read, keep both keys until then: the new
            // keybag would never open without its key.
            let old = published.withLock { $0.keybag }
            if bytes == old.serialized, let current = try? currentEffaceable(of: old) {
                try? context.effaceable.store(current)
                try? context.trustedHosts.dropNext()
            }
            throw error
        }
        publish(keybag, policy)
        _ = replaceHosts(by: carried)
        let reason = "the change took effect, but is not finished (\(error.reason))"
        throw KeybagError(error.code, path: error.path, reason)
    }

    /// Throws where another process wrote the keybag. The caller holds the device's lock.
    func requireUnchanged() throws(KeybagError) {
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

    func writeKeybags(_ keybag: Keybag) throws(KeybagError) {
        try KeybagStore.write(keybag, context)
    }

    func publish(_ keybag: Keybag, _ policy: KeybagPolicy) {
        published.withLock {
            $0.keybag = keybag
            $0.policy = policy
            $0.isPolicyForged = false
        }
    }

    // MARK: Shared with creation

    /// Builds a complete keybag: `set` in the device slot, or split between that and a passcode
    /// slot.
    static func build(
        _ context: KeybagContext, _ set: borrowing KeybagKeySet, format: VolumeFormat,
        identity: KeybagIdentity, generation: UInt64, policy: KeybagPolicy,
        passcode: borrowing StretchedPasscode?, effaceable: borrowing SecretBytes
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
                set, .passcodeClasses, kek: kek, format: format, identity: identity,
                kind: .passcode, derivation: passcode.derivation)
        }
        let deviceSlot = try context.seal(
            set, deviceContents, kek: deviceKEK, format: format, identity: identity, kind: .device)
        let keybag = Keybag(
            format: format, identity: identity, generation: generation, deviceSlot: deviceSlot,
            passcodeSlot: passcodeSlot)
        let policyKey = try hierarchy.policyKey(deviceSecret)
        let finished = try context.finish(keybag, policy, policyKey: policyKey, set)
        // Check now: the bytes that will replace the only keybag must open.
        let again = try? Keybag(reading: finished.serialized)
        precondition(again == finished, "a keybag reads back as it was written")
        let opened = try context.policy(of: finished, policyKey: policyKey)
        precondition(opened == policy, "a keybag opens with the keys it was sealed with")
        let isForged = try context.isPolicyForged(in: finished, set, policyKey: policyKey)
        precondition(!isForged, "a policy authenticates with the key of its authenticator")
        return finished
    }

    /// Writes both copies, one durably after the other.
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
