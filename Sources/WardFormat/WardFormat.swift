// WardFormat: the structures on disk, as values. It parses and serialises. It does no I/O and holds
// no keys: a call borrows the key that authenticates a structure. `docs/format.md` is the normative
// text. Read `ProtectionClass` and `PageLayout` first.

/// An error in bytes that do not follow the format.
public struct FormatError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Code: Equatable, Sendable {
        /// The magic is wrong: the bytes are no structure of ward's.
        case notRecognised
        /// A later version of ward made the bytes.
        case newerVersion
        /// A length or a value is impossible.
        case malformed
        /// A tag or a MAC does not match.
        case authenticationFailed
    }

    public let code: Code
    /// The structure that was read and what is wrong with it, in a few words.
    public let description: String

    public init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
