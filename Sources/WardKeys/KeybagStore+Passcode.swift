import WardCrypto
import WardFormat
import WardSystem

extension KeybagStore {
    /// Opens the passcode slot: classes A, B, C and CX into the keyring.
    ///
    /// The attempt is counted on disk before it is judged (L5); the same wrong passcode again does
    /// not count, in whatever process and after a restart too. Throws `wrongPasscode`, `tryLater`,
    /// `disabled`, `noPasscodeSet`; `erased` where this was the tenth and erasing is on.
    public func openPasscodeSlot(
        _ passcode: borrowing Passcode, into keyring: ClassKeyring
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            let set = try judge(passcode)
            try KeybagContext.install(set, into: keyring, path: context.keybagPath)
        }
    }

    /// The daemon started: a delay that still runs begins again (L6).
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

    /// The daemon ends: a delay that is over is written down as over. A restart begins only one
    /// that still ran (L6), and on the clock of the next boot nobody could tell.
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

    /// Sets the first passcode: existing files of classes A, B, C and CX are protected by it at
    /// once. No file is touched.
    ///
    /// `cost`: by default what was chosen when the volume was made. Throws `passcodeAlreadySet`.
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

    /// Replaces the passcode, in time independent of the number of files. Copies of the keybag made
    /// before open nothing afterwards (L7). No host is trusted any more: returns the names of those
    /// that were.
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

    /// Removes the passcode: the device alone opens everything (S0). No host is trusted any more:
    /// returns the names of those that were.
    @discardableResult
    public func removePasscode(_ old: borrowing Passcode) throws(KeybagError) -> [String] {
        try operations.withLock { _ throws(KeybagError) in
            var set = try judge(old)
            set.formUnion(try deviceSet())
            return try reseal(set, under: nil)
        }
    }

    // MARK: Judging

    /// The set of the passcode slot, or why not. The caller holds `operations`.
    ///
    /// Counting, judging and forgetting are one step towards other processes: each attempt of each
    /// is counted once, one after the other. Only the slow part comes before.
    func judge(_ passcode: borrowing Passcode) throws(KeybagError) -> KeybagKeySet {
        let keybag = published.withLock { $0.keybag }
        guard let slot = keybag.passcodeSlot, let derivation = slot.derivation else {
            throw KeybagError(.noPasscodeSet, path: volumePath, "the volume has no passcode")
        }
        // Nothing is stretched that would not be judged.
        let before = try attemptsOnDisk()
        // The tenth was judged, and what follows could not be done then.
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
            try count(try context.hierarchy.wrongPasscodeTag(entangled))
            let kek = try context.hierarchy.passcodeKEK(entangled)
            guard let set = try context.open(slot, kek: kek, identity: keybag.identity) else {
                throw try judgedWrong()
            }
            guard set.contains(.passcodeClasses) else {
                throw KeybagError(
                    .damaged, path: context.keybagPath, "the passcode slot is incomplete")
            }
            forgetAttempts()
            return set
        }
    }

    private func attemptsOnDisk() throws(KeybagError) -> PasscodePolicy {
        let (attempts, needsStoring) = try context.ledger.load()
        guard needsStoring else { return attempts }
        // A delay that begins again has to begin at one moment, also where nothing else is written.
        return try context.withLock { () throws(KeybagError) in try context.ledger.settled() }
    }

    /// Writes the attempt down, or says why there is none. The caller holds the device's lock.
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

    /// What to say of the wrong passcode that was just counted. The caller holds the device's lock.
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

    /// The passcode was right, or there is another one. A failure to write it down makes the next
    /// unlock count from too many; it must not make this one fail. The caller holds the device's
    /// lock.
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
            new: passcode, cost: cost?.parameters() ?? policy.passcodeCost)
    }

    /// Seals `set` anew under a new effaceable key, with or without a passcode: the sequence of L7.
    ///
    /// state {old, new} → keybag → its copy → remembered generation → state {new}, each durable
    /// before the next. Until the keybag's rename the old passcode opens, from then on the new one;
    /// opening the store finishes the rest.
    ///
    /// Trusted hosts go with the effaceable key, but for a change of the policy alone (`policy`):
    /// then they are sealed anew in a file beside theirs, which takes its place where the new
    /// keybag does. Returns the names of those that went.
    @discardableResult
    func reseal(
        _ set: borrowing KeybagKeySet, under passcode: consuming StretchedPasscode?,
        policy changed: KeybagPolicy? = nil
    ) throws(KeybagError) -> [String] {
        let (old, policyBefore) = published.withLock { ($0.keybag, $0.policy) }
        var policy = changed ?? policyBefore
        if let cost = passcode?.derivation.cost { policy.passcodeCost = cost }
        let fresh = try KeybagContext.randomKey(path: context.keybagPath)
        let keybag = try KeybagStore.build(
            context, set, identity: old.identity, generation: old.generation + 1, policy: policy,
            passcode: passcode, effaceable: fresh)
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
                // Tags of the old effaceable key mean nothing any more, and a file that was lost is
                // there again.
                published.withLock { $0.attempts.reset() }
                try? context.ledger.store(PasscodePolicy())
                return replaceHosts(by: carried)
            }
        }
    }

    /// A write of the sequence failed: whichever keybag is in place counts from now on. Returns
    /// where that is the new one and all is finished; else throws.
    private func settle(
        after error: KeybagError, _ keybag: Keybag, _ policy: KeybagPolicy,
        _ carried: TrustedHostList?
    ) throws(KeybagError) {
        let bytes = try? context.storage.readBytes(context.keybagPath, limit: Keybag.maximumBytes)
        guard bytes == keybag.serialized else {
            // The old one: take the new effaceable key back. Where that fails the next opening
            // does, and where it is not known which one is in place both keys stay until then:
            // without its own the new one would never open again.
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

    /// Refuses to overwrite what another process wrote. The caller holds the device's lock.
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
