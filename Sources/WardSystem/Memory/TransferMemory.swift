import CWardLinux
import Glibc
import Synchronization

/// Buffers that plaintext passes through. They are left out of core dumps, and locked (no swap)
/// where this process may lock that much: as root or with `LimitMEMLOCK=`.
///
/// Their owners wipe them before they sleep. Without locked memory only that keeps plaintext out of
/// the swap: keys need the usual 8 MiB of `RLIMIT_MEMLOCK`. With a larger limit keys come first,
/// too: buffers get `Budget.limited` of it.
public enum TransferMemory {
    /// How much buffer memory may be locked, bytes.
    private enum Budget {
        /// If so much can be locked, there is practically no limit.
        static let unlimitedProbe = 1 << 30
        /// If so much can be locked, it suffices for all keys of one volume, and the buffers of a
        /// machine with few CPUs.
        static let limitedProbe = 64 << 20
        static let limited = 40 << 20
    }

    /// Finds out by trying: capabilities, limits and user namespaces all count. No memory is
    /// allocated for it.
    private static let lockableBytes: Int = {
        if mayLock(Budget.unlimitedProbe) { return .max }
        return mayLock(Budget.limitedProbe) ? Budget.limited : 0
    }()

    /// The sizes of locked buffers, by address, and their sum.
    private static let locked = Mutex<(bytes: Int, sizes: [UInt: Int])>((0, [:]))

    /// Maps zero bytes; nil where there is no memory.
    private static func reserve(_ count: Int) -> UnsafeMutableRawPointer? {
        let memory = mmap(nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        return memory == MAP_FAILED ? nil : memory
    }

    private static func mayLock(_ count: Int) -> Bool {
        guard let memory = reserve(count) else { return false }
        defer { munmap(memory, count) }
        return ward_mlock_on_fault(memory, count) == 0
    }

    /// Maps `count` zero bytes, page-aligned; to be given back with `unmap`. Throws `ENOMEM`.
    public static func map(_ count: Int) throws(Errno) -> UnsafeMutableRawPointer {
        guard let memory = reserve(count) else { throw .noMemory }
        _ = madvise(memory, count, MADV_DONTDUMP)
        locked.withLock { locked in
            guard locked.bytes <= lockableBytes - count, ward_mlock_on_fault(memory, count) == 0
            else { return }
            locked.bytes += count
            locked.sizes[UInt(bitPattern: memory)] = count
        }
        return memory
    }

    /// Whether there is memory for `count` bytes, and for the rest of the process meanwhile. For
    /// work that the process can do without, such as one more thread: if a small allocation fails,
    /// the process ends.
    public static func hasRoom(for count: Int) -> Bool {
        let (bytes, isTooMuch) = count.addingReportingOverflow(spareBytes)
        guard !isTooMuch else { return false }
        guard let memory = reserve(bytes) else { return false }
        munmap(memory, bytes)
        return true
    }

    private static let spareBytes = 8 << 20

    /// Gives back memory of `map` that its owner has wiped.
    public static func unmap(_ memory: UnsafeMutableRawPointer, _ count: Int) {
        locked.withLock { locked in
            locked.bytes -= locked.sizes.removeValue(forKey: UInt(bitPattern: memory)) ?? 0
        }
        munmap(memory, count)
    }
}
