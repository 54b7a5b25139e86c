import Glibc

/// How a mode that would lock out a daemon running as an ordinary user is kept (docs/format.md,
/// "Modes").
///
/// The backing inode keeps u+rw (files) or u+rwx (directories). Where the true mode lacks one of
/// them, or has the marking bit itself, the backing mode carries a mark: the sticky bit on files,
/// the set-user-ID bit on directories, which mean nothing there. Then the attribute
/// `user.ward.mode` beside it holds the true mode (two bytes, little-endian); a marked inode
/// without the attribute lacks u+w and nothing else, which covers 0444 and 0555 without an
/// attribute.
struct BackingMode: Equatable {
    static let attributeName = "user.ward.mode"

    /// Permission bits of the backing inode.
    var bits: mode_t
    /// The true mode has to be stored beside it.
    var needsRecord: Bool

    /// `mode`: permission bits and set-ID and sticky bits, 07777.
    init(trueMode: mode_t, isDirectory: Bool) {
        let mark = isDirectory ? S_ISUID : S_ISVTX
        let needed = BackingMode.neededBits(isDirectory: isDirectory)
        let mode = trueMode & 0o7777
        if mode & mark == 0, mode & needed == needed {
            bits = mode
            needsRecord = false
        } else {
            bits = mode | needed | mark
            needsRecord = !(mode & mark == 0 && mode | 0o200 == mode | needed)
        }
    }

    /// The permission bits that a backing inode has in any case.
    static func neededBits(isDirectory: Bool) -> mode_t { isDirectory ? 0o700 : 0o600 }

    static func isMarked(_ backingMode: mode_t) -> Bool {
        switch backingMode & S_IFMT {
        case S_IFREG: backingMode & S_ISVTX != 0
        case S_IFDIR: backingMode & S_ISUID != 0
        default: false
        }
    }

    /// The true mode of a marked inode; `record` is the attribute's value, nil where there is none.
    static func trueMode(ofMarked backingMode: mode_t, record: UInt16?) -> mode_t {
        let mark = backingMode & S_IFMT == S_IFDIR ? S_ISUID : S_ISVTX
        if let record { return backingMode & S_IFMT | mode_t(record) & 0o7777 }
        return backingMode & ~(mark | 0o200)
    }
}
