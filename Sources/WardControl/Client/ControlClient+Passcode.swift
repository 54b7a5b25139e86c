import WardSystem

/// Calls that change the passcode and the policy.
extension ControlClient {
    /// Sets the first passcode. Throws `passcodeAlreadySet` of `VolumeError`.
    public func setPasscode(_ passcode: borrowing SecretBytes) throws(ControlError) {
        _ = try call(.setPasscode, secrets: "passcode", passcode)
    }

    /// Returns the names of hosts that are not trusted any more.
    @discardableResult
    public func changePasscode(
        from current: borrowing SecretBytes, to passcode: borrowing SecretBytes
    ) throws(ControlError) -> [String] {
        let answer = try call(.changePasscode, secrets: "current", current, "passcode", passcode)
        return answer["hostsRemoved"]?.arrayValue?.compactMap(\.stringValue) ?? []
    }

    /// Returns the names of hosts that are not trusted any more.
    @discardableResult
    public func removePasscode(current: borrowing SecretBytes) throws(ControlError) -> [String] {
        let answer = try call(.removePasscode, secrets: "current", current)
        return answer["hostsRemoved"]?.arrayValue?.compactMap(\.stringValue) ?? []
    }

    /// Changes the settings that are not nil. `current` is needed where a passcode is set.
    public func setPolicy(
        graceSeconds: Double?, userInactiveSeconds: Double?, eraseAfterTries: Bool?,
        current: borrowing SecretBytes?
    ) throws(ControlError) {
        let plain = JSONValue.object(present: [
            ("graceSeconds", graceSeconds.map { .double($0) }),
            ("userInactiveSeconds", userInactiveSeconds.map { .double($0) }),
            ("eraseAfterTries", eraseAfterTries.map { .bool($0) }),
        ])
        switch current {
        case .some(let current):
            _ = try call(.setPolicy, secrets: "current", current, beside: plain)
        case .none: _ = try call(.setPolicy, plain)
        }
    }
}
