import WardSystem

/// Why a volume could not be mounted or unmounted, and what helps.
public struct FUSEError: Error, Sendable, CustomStringConvertible {
    public enum Code: Sendable, Equatable {
        /// The kernel has no FUSE here: no `/dev/fuse`.
        case noDevice
        /// `fusermount3` is needed, because the caller is not root, and is not installed.
        case noHelper
        /// The mount point does not exist.
        case mountPointMissing
        /// The mount point is not a directory.
        case notADirectory
        /// The mount point has something in it.
        case notEmpty
        /// Something is mounted there, or in use there (for unmounting: open files).
        case busy
        /// `allow_other` is not permitted to ordinary users on this machine.
        case allowOtherForbidden
        /// The kernel's FUSE is older than 7.31 (Linux 5.4).
        case kernelTooOld
        /// The kernel or `fusermount3` said no.
        case refused
    }

    public let code: Code
    /// What was attempted: "mount", "unmount".
    public let action: String
    public let path: String
    /// Why, in a few words.
    public let reason: String
    /// The next thing to try, as a command where there is one.
    public let hint: String?

    public init(
        _ code: Code, _ action: String, _ path: String, _ reason: String, hint: String? = nil
    ) {
        self.code = code
        self.action = action
        self.path = path
        self.reason = reason
        self.hint = hint
    }

    public var description: String { "cannot \(action) \(path): \(reason)" }
}
