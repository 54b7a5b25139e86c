import Glibc

/// Flags of open(2) that glibc declares only under _GNU_SOURCE, which Swift does not set. Values of
/// include/uapi/asm-generic/fcntl.h, the same on x86-64 and ARM64.
enum OpenFlag {
    /// `O_PATH`: refers to a node without opening it.
    static let path: Int32 = 0o10000000
    /// `O_TMPFILE`: makes an unnamed file in the given directory.
    static let temporary: Int32 = 0o20000000 | O_DIRECTORY
}
