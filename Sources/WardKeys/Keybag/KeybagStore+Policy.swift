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

    /// Stores the policy of a volume without a passcode: there an older keybag opens nothing more
    /// than this one. The caller holds `operations`.
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
