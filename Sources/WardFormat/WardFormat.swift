// WardFormat: what is on disk, as values. Parsing and serialising only: no I/O, and no keys are
// held (those that authenticate a structure are borrowed for the call). `docs/format.md` is the
// normative text. Read `ProtectionClass` and `PageLayout` first.

/// Bytes that are not what the format says.
public struct FormatError: Error, Equatable, Sendable, CustomStringConvertible {
    public enum Code: Equatable, Sendable {
        /// Not a structure of ward's at all: wrong magic.
        case notRecognised
        /// Made by a later version than this one can read.
        case newerVersion
        /// Wrong length, impossible value.
        case malformed
        /// A tag or MAC does not match.
        case authenticationFailed
    }

    public let code: Code
    /// What was being read, and what was expected, in a few words.
    public let description: String

    public init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }
}
