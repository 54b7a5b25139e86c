import WardSystem

/// Why a volume could not be mounted or unmounted, and what helps.
public struct FUSEError: Error, Sendable, CustomStringConvertible {
    /// The kind of failure.
    public enum Code: Sendable, Equatable {
        /// The kernel has no FUSE here: no `/dev/fuse`.
        case noDevice
        /// `fusermount3` is needed, because the caller is not root, and is not installed.
        case noHelper
        /// The mount point does not exist.
        case mountPointMissing
        /// The mount point is not a directory.
        case notADirectory
        /// The mount point is not empty.
        case notEmpty
        /// Another mount is there already, or (for unmounting) a program has files open there.
        case busy
        /// This machine does not let ordinary users set `allow_other`.
        case allowOtherForbidden
        /// The kernel's FUSE is older than 7.31 (Linux 5.4).
        case kernelTooOld
        /// The kernel or `fusermount3` refused.
        case refused
    }

    public let code: Code
    /// The attempted action: "mount on", "unmount".
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
