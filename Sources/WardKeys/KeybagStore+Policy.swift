import WardFormat
import WardSystem

/// What of a volume's policy is to change; nil stays as it is.
public struct PolicyChange: Equatable, Sendable {
    /// How long after a lock class A stays readable; whole milliseconds count.
    public var gracePeriod: Duration?
    /// How long after the last unlock class CX stays readable; whole seconds count.
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

    /// The changed policy, as it will be read: what does not fit its fields is cut to the longest
    /// that does.
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
    /// Needs the passcode where one is set, and seals everything anew as a change of the passcode
    /// does: an older keybag, with the older policy, opens nothing afterwards. Throws
    /// `passcodeNeeded`, `wrongPasscode` and its kin.
    public func changePolicy(
        _ change: PolicyChange, passcode: borrowing Passcode?
    ) throws(KeybagError) {
        try operations.withLock { _ throws(KeybagError) in
            let policy = change.applied(to: self.policy)
            guard hasPasscode else { return try store(policy) }
            switch passcode {
            case .some(let passcode):
                var set = try judge(passcode)
                set.formUnion(try deviceSet())
                try reseal(set, under: try stretch(new: passcode, nil), policy: policy)
            case .none:
                throw KeybagError(
                    .passcodeNeeded, path: volumePath, "changing the policy needs the passcode")
            }
        }
    }

    /// Without a passcode there is nothing that an older keybag could win back. The caller holds
    /// `operations`.
    private func store(_ policy: KeybagPolicy) throws(KeybagError) {
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
