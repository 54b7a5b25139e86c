import Synchronization

/// Settings of the module for this process.
public enum DataProtection {
    /// What a call does that asks for a class other than `none` where nothing protects files: off a
    /// ward volume.
    public enum Policy: Sendable {
        /// It throws `CocoaError.featureUnsupported` and creates nothing.
        case `throw`
        /// It goes on without protection; the first time standard error says so.
        case warnOnce
        /// It goes on without protection, as Foundation does on Linux.
        case ignore
    }

    private static let chosen = Mutex(Policy.throw)
    private static let hasWarned = Mutex(false)

    /// `throw` unless set otherwise.
    public static var policy: Policy {
        get { chosen.withLock { $0 } }
        set { chosen.withLock { $0 = newValue } }
    }

    /// Whether `protection` is to be set on the item, or on what will be made in it: false where it
    /// goes on without.
    static func applies(
        _ protection: FileProtectionType, at place: String, path: String
    ) throws -> Bool {
        guard Paths.isWhole(path) else {
            throw CocoaError(.fileWriteInvalidFileName, userInfo: [NSFilePathErrorKey: path])
        }
        switch VolumeAttributes.place(of: place) {
        case .volume: return true
        // No such item, no right to get there, a daemon that is gone: the call itself says so.
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
