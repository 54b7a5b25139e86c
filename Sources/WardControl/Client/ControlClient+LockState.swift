import WardSystem

/// Calls that change the lock state.
extension ControlClient {
    /// Locks after the grace period. With `now` it locks at once, and returns when class A is
    /// closed; trusted hosts can keep it open. If `endingHosts`, their connections are ended first.
    /// The events show the `reason`. Returns the state.
    public func lock(
        now: Bool = false, reason: String? = nil, endingHosts: Bool = false
    ) throws(ControlError) -> String {
        let parameters = JSONValue.object(present: [
            ("now", now ? .bool(true) : nil), ("reason", reason.map { .string($0) }),
            ("endHosts", endingHosts ? .bool(true) : nil),
        ])
        return try state(call(.lock, parameters))
    }

    /// Waits for the answer to a `lock` that timed out and was the last call; the connection's
    /// time-out limits this wait, too. Returns the state.
    public func lateLock() throws(ControlError) -> String { try state(readAnswer().parameters) }

    /// Returns the state.
    public func unlock(passcode: borrowing SecretBytes) throws(ControlError) -> String {
        try state(call(.unlock, secrets: "passcode", passcode))
    }

    /// Returns the state.
    public func reboot() throws(ControlError) -> String { try state(call(.reboot)) }
}
