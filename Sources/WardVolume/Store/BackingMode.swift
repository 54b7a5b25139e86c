import Glibc

/// The mode of a backing inode (docs/format.md, "Modes"). The true mode may lock out a daemon that
/// runs as an ordinary user.
///
/// The backing inode keeps u+rw (files) or u+rwx (directories). The backing mode carries a mark
/// where the true mode lacks one of these bits, or has the marking bit itself. The mark is the
/// sticky bit on files and the set-user-ID bit on directories, which mean nothing there. The
/// attribute `user.ward.mode` then holds the true mode (two bytes, little-endian). A marked inode
/// without the attribute lacks u+w and nothing else: modes such as 0444 and 0555 need no attribute.
struct BackingMode: Equatable {
    static let attributeName = "user.ward.mode"

    /// Permission bits of the backing inode.
    var bits: mode_t
    /// The true mode has to be stored in the attribute.
    var needsRecord: Bool

    /// `trueMode`: permission bits, set-ID bits and the sticky bit, 07777.
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

    /// The permission bits that every backing inode has.
    static func neededBits(isDirectory: Bool) -> mode_t { isDirectory ? 0o700 : 0o600 }

    static func isMarked(_ backingMode: mode_t) -> Bool {
        switch backingMode & S_IFMT {
        case S_IFREG: backingMode & S_ISVTX != 0
        case S_IFDIR: backingMode & S_ISUID != 0
        default: false
        }
    }

    /// Returns the true mode of a marked inode. `record`: the attribute's value, nil where there is
    /// no attribute.
    static func trueMode(ofMarked backingMode: mode_t, record: UInt16?) -> mode_t {
        let mark = backingMode & S_IFMT == S_IFDIR ? S_ISUID : S_ISVTX
        if let record { return backingMode & S_IFMT | mode_t(record) & 0o7777 }
        return backingMode & ~(mark | 0o200)
    }
}
