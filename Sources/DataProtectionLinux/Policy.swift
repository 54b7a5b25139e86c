import Synchronization

/// Settings of this module for the process.
public enum DataProtection {
    /// The behaviour of a call that asks for a class other than `none` off a ward volume, where
    /// files can't be protected.
    public enum Policy: Sendable {
        /// The call throws `CocoaError.featureUnsupported` and creates nothing.
        case `throw`
        /// The call goes on without protection. The first such call writes a warning to standard
        /// error.
        case warnOnce
        /// The call goes on without protection, as Foundation does on Linux.
        case ignore
    }

    private static let chosen = Mutex(Policy.throw)
    private static let hasWarned = Mutex(false)

    /// The policy of this process, `throw` by default. Any thread may set it.
    public static var policy: Policy {
        get { chosen.withLock { $0 } }
        set { chosen.withLock { $0 = newValue } }
    }

    /// Whether to set `protection` on the item; false where the call goes on without protection.
    /// The item, or the directory for it, is at `place`. Throws `CocoaError`.
    static func applies(
        _ protection: FileProtectionType, at place: String, path: String
    ) throws -> Bool {
        guard Paths.isWhole(path) else {
            throw CocoaError(.fileWriteInvalidFileName, userInfo: [NSFilePathErrorKey: path])
        }
        switch VolumeAttributes.place(of: place) {
        case .volume: return true
        // A missing item, a missing permission or a dead daemon: the call itself reports it.
        case .unreachable: return true
        case .elsewhere: break
        }
        if protection == .none { return false }
        switch policy {
        case .throw:
            throw CocoaError(
                .featureUnsupported,
                userInfo: [
                    NSFilePathErrorKey: path,
                    NSLocalizedFailureReasonErrorKey:
                        "\(place) is not on a ward volume, so files there can't be protected.",
                ])
        case .warnOnce:
            let isFirst = hasWarned.withLock { warned in
                defer { warned = true }
                return !warned
            }
            if isFirst {
                FileHandle.standardError.write(
                    Data("DataProtection: \(path) is not on a ward volume: not protected\n".utf8))
            }
            return false
        case .ignore: return false
        }
    }
}
