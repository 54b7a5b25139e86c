import WardSystem

/// Calls that erase the volume.
extension ControlClient {
    /// Destroys the effaceable key of the volume `uuid` and ends its mount. Returns when the key is
    /// gone.
    public func erase(uuid: String, passcode: borrowing SecretBytes) throws(ControlError) {
        _ = try call(
            .erase, secrets: "passcode", passcode, beside: .object([("uuid", .string(uuid))]))
    }

    /// Announces an erase without the passcode: locks the volume at once. Returns the seconds until
    /// the key is destroyed; nil where it is gone already. Until then `cancelErase` stops it.
    public func announceErase(uuid: String) throws(ControlError) -> Double? {
        try call(.erase, .object([("uuid", .string(uuid))]))["eraseInSeconds"]?.doubleValue
    }

    /// Cancels an announced erase. Returns whether there was one.
    public func cancelErase() throws(ControlError) -> Bool {
        try call(.cancelErase)["cancelled"]?.boolValue ?? false
    }
}
