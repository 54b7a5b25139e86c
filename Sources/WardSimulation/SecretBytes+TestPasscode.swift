import WardSystem

extension SecretBytes {
    /// A passcode for tests; it is not secret.
    public init(testPasscode: String) throws(Errno) {
        let bytes = Array(testPasscode.utf8)
        try self.init(zeroed: bytes.count)
        withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    }
}
