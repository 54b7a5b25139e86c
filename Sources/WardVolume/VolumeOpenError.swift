import WardSystem

/// Why a volume can't be opened or created: which file, and what is wrong with it.
public struct VolumeOpenError: Error, Sendable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// The directory has no ward volume in it.
        case notAVolume
        /// A structure of the root does not authenticate or parse.
        case damaged
        /// Made by a later version.
        case newerVersion
        /// The backing file system said no.
        case system(Errno)
    }

    public let code: Code
    public let path: String
    /// What is wrong, in a few words.
    public let reason: String

    public init(_ code: Code, path: String, _ reason: String) {
        self.code = code
        self.path = path
        self.reason = reason
    }

    public var description: String { "\(path): \(reason)" }
}
