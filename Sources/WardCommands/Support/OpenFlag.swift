import Glibc

/// Flags of open(2) that glibc declares under _GNU_SOURCE only, which the importer does not set;
/// include/uapi/asm-generic/fcntl.h, the same on x86-64 and ARM64.
enum OpenFlag {
    /// `O_PATH`: names a node without opening it.
    static let path: Int32 = 0o10000000
    /// `O_TMPFILE`: an unnamed file in the directory that is given.
    static let temporary: Int32 = 0o20000000 | O_DIRECTORY
}
