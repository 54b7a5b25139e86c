import WardSystem

extension SecretBytes {
    /// A passcode of tests, which is no secret, for calls that take one.
    public init(testPasscode: String) throws(Errno) {
        let bytes = Array(testPasscode.utf8)
        try self.init(zeroed: bytes.count)
        withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    }
}
