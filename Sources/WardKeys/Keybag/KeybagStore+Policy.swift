import WardCrypto
import WardFormat
import WardSystem

/// The wanted changes of a volume's policy; nil leaves a value as it is.
public struct PolicyChange: Equatable, Sendable {
    /// How long class A stays readable after a lock; rounded down to whole milliseconds.
    public var gracePeriod: Duration?
    /// How long class CX stays readable after the last unlock; rounded down to whole seconds.
    public var userInactivePeriod: Duration?
    /// Whether the tenth wrong passcode erases the volume instead of disabling it.
    public var erasesAfterTenWrongPasscodes: Bool?

    public init(
        gracePeriod: Duration? = nil, userInactivePeriod: Duration? = nil,
        erasesAfterTenWrongPasscodes: Bool? = nil
    ) {
        self.gracePeriod = gracePeriod
        self.userInactivePeriod = userInactivePeriod
        self.erasesAfterTenWrongPasscodes = erasesAfterTenWrongPasscodes
    }

    public var isEmpty: Bool { self == PolicyChange() }

    /// The changed policy as it will be read back: too large values become the largest that fit.
    func applied(to policy: KeybagPolicy) -> KeybagPolicy {
        var policy = policy
        if let gracePeriod { policy.gracePeriod = gracePeriod }
        if let userInactivePeriod { policy.userInactivePeriod = userInactivePeriod }
        if let erasesAfterTenWrongPasscodes {
            policy.erasesAfterTenWrongPasscodes = erasesAfterTenWrongPasscodes
        }
        guard let stored = try? KeybagPolicy(reading: policy.serialized) else {
            preconditionFailure("a policy reads back")
        }
        return stored
    }
}

extension KeybagStore {
    /// Changes grace period, CX period and erasing after ten wrong passcodes.
    ///
    /// Needs the passcode where one is set. Seals everything anew, as a passcode change does, so
    /// that an older keybag with the older policy opens nothing afterwards. Throws
    /// `passcodeNeeded`, and the errors of a wrong passcode.
    public func changePolicy(
        _ change: PolicyChange, passcode: borrowing Passcode?
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            guard hasPasscode else { return try store(change) }
            switch passcode {
            case .some(let passcode):
                var set = try judge(passcode)
                set.formUnion(try deviceSet())
                // Judging may have found the policy forged, so it is read after that.
                try reseal(
                    set, under: try stretch(new: passcode, nil),
                    policy: change.applied(to: self.policy))
            case .none:
                throw KeybagError(
                    .passcodeNeeded, path: volumePath, "changing the policy needs the passcode")
            }
        }
    }

    /// Stores the policy of a volume without a passcode: there an older keybag opens nothing more
    /// than this one. The caller holds `operations`.
    private func store(_ change: PolicyChange) throws(KeybagError) {
        let set = try deviceSet()
        let policy = change.applied(to: self.policy)
        try context.withLock { () throws(KeybagError) in
            try requireUnchanged()
            var keybag = published.withLock { $0.keybag }
            let effaceable = try currentEffaceable(of: keybag)
            let secret = try context.hierarchy.deviceSecret(effaceable: effaceable)
            keybag.generation += 1
            let policyKey = try context.hierarchy.policyKey(secret)
            keybag = try context.finish(keybag, policy, policyKey: policyKey, set)
            try writeKeybags(keybag)
            try context.remember(keybag.generation)
            publish(keybag, policy)
        }
    }

    /// Makes the keybag one of the volume's new `format`, as a passcode change with the same
    /// passcode does: with a new effaceable key. Older copies of the keybag open nothing
    /// afterwards. Hosts stay trusted.
    ///
    /// After a power cut the keybag is the old or the new one. Needs the passcode where one is set.
    /// Changes nothing where the keybag has this format or a later one. Throws `passcodeNeeded`,
    /// and the errors of a wrong passcode.
    public func raise(
        to format: VolumeFormat, passcode: borrowing Passcode?
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            guard self.format < format else { return }
            switch passcode {
            case .some(let passcode) where hasPasscode:
                var set = try judge(passcode)
                set.formUnion(try deviceSet())
                try reseal(
                    set, under: try stretch(new: passcode, nil), policy: policy, format: format)
            default:
                guard !hasPasscode else {
                    throw KeybagError(
                        .passcodeNeeded, path: volumePath, "a new format needs the passcode")
                }
                try reseal(try deviceSet(), under: nil, policy: policy, format: format)
            }
        }
    }

    /// Judges the policy by its authenticator. Where that is wrong, the stronger values count from
    /// now on. `set` was opened from `keybag` and has class C's key.
    func judgePolicy(
        of keybag: Keybag, _ set: borrowing KeybagKeySet, policyKey: borrowing SecretBytes
    ) throws(KeybagError) {
        guard try context.isPolicyForged(in: keybag, set, policyKey: policyKey) else { return }
        // The cost of a passcode that was just judged is authentic.
        let usualCost = keybag.passcodeSlot?.derivation?.cost ?? ScryptCost.minimum
        let counting = published.withLock { published -> KeybagPolicy? in
            guard published.keybag == keybag, !published.isPolicyForged else { return nil }
            published.policy = published.policy.stronger(usualCost: usualCost)
            published.isPolicyForged = true
            return published.policy
        }
        guard let counting, let listener = forgedPolicyListener.withLock({ $0 }) else { return }
        listener(counting)
    }

    /// The key that seals the policy, from the effaceable key.
    func policyKey(_ effaceable: borrowing SecretBytes) throws(KeybagError) -> SecretBytes {
        try context.hierarchy.policyKey(try context.hierarchy.deviceSecret(effaceable: effaceable))
    }

    /// Calls `listener` with the policy that counts when a forged one shows, before the operation
    /// that showed it returns; at once where one showed before. `listener` must not wait, and is
    /// the only one.
    public func onForgedPolicy(_ listener: @escaping @Sendable (KeybagPolicy) -> Void) {
        forgedPolicyListener.withLock { $0 = listener }
        let counting = published.withLock { $0.isPolicyForged ? $0.policy : nil }
        if let counting { listener(counting) }
    }

    /// A forged policy, in words for the owner.
    public static let forgedPolicyText =
        "the policy was changed without the passcode: the stronger values hold; set it again with "
        + "ward policy set"
}
