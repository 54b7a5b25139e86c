import WardSystem

/// Says why a volume can't be opened or created: which file, and what is wrong with it.
public struct VolumeOpenError: Error, Sendable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// The directory has no ward volume in it.
        case notAVolume
        /// A structure of the root does not authenticate or parse.
        case damaged
        /// A later version of ward made the volume.
        case newerVersion
        /// A system call on the backing store failed.
        case system(Errno)
    }

    public let code: Code
    public let path: String
    /// The fault, in a few words.
    public let reason: String

    public init(_ code: Code, path: String, _ reason: String) {
        self.code = code
        self.path = path
        self.reason = reason
    }

    public var description: String { "\(path): \(reason)" }
}
