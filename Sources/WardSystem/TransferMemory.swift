import CWardLinux
import Glibc

/// Buffers that plaintext passes through: left out of core dumps, and locked (no swap) where this process may lock that
/// much, root or `LimitMEMLOCK=`.
///
/// Their owners wipe them before they sleep. Elsewhere that alone keeps plaintext out of the swap: with the usual 8 MiB
/// of `RLIMIT_MEMLOCK`, keys come first.
public enum TransferMemory {
    /// More than keys and buffers of one volume ever need together.
    private static let generousBytes = 64 << 20

    /// Whether this process may lock `generousBytes`: what counts is what the kernel does (capabilities, limits, user
    /// namespaces), so it is asked. Nothing is allocated for it.
    private static let mayLock: Bool = {
        let memory = mmap(
            nil, generousBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        guard let memory, memory != MAP_FAILED else { return false }
        defer { munmap(memory, generousBytes) }
        return ward_mlock_on_fault(memory, generousBytes) == 0
    }()

    /// `count` zero bytes, page-aligned; to be given back with munmap(2). Throws `ENOMEM`.
    public static func map(_ count: Int) throws(Errno) -> UnsafeMutableRawPointer {
        let memory = mmap(nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        guard let memory, memory != MAP_FAILED else { throw .noMemory }
        _ = madvise(memory, count, MADV_DONTDUMP)
        if mayLock { _ = ward_mlock_on_fault(memory, count) }
        return memory
    }
}
