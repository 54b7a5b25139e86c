import CWardLinux
import Glibc
import Synchronization

/// Buffers that plaintext passes through: left out of core dumps, and locked (no swap) where this
/// process may lock that much, root or `LimitMEMLOCK=`.
///
/// Their owners wipe them before they sleep. Elsewhere that alone keeps plaintext out of the swap:
/// with the usual 8 MiB of `RLIMIT_MEMLOCK`, keys come first. So they do where there is a larger
/// limit: only `Budget.limited` of it is for buffers.
public enum TransferMemory {
    /// How much of it may be locked, bytes.
    private enum Budget {
        /// With this there is no limit to speak of.
        static let unlimitedProbe = 1 << 30
        /// With this there is enough for all keys of one volume, and the buffers of a machine with
        /// few CPUs.
        static let limitedProbe = 64 << 20
        static let limited = 40 << 20
    }

    /// What counts is what the kernel does (capabilities, limits, user namespaces), so it is asked.
    /// Nothing is allocated for it.
    private static let lockableBytes: Int = {
        if mayLock(Budget.unlimitedProbe) { return .max }
        return mayLock(Budget.limitedProbe) ? Budget.limited : 0
    }()

    /// Those that are locked, by address.
    private static let locked = Mutex<(bytes: Int, sizes: [UInt: Int])>((0, [:]))

    /// Zero bytes that nobody has touched; nil where there are none to be had.
    private static func reserve(_ count: Int) -> UnsafeMutableRawPointer? {
        let memory = mmap(nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        return memory == MAP_FAILED ? nil : memory
    }

    private static func mayLock(_ count: Int) -> Bool {
        guard let memory = reserve(count) else { return false }
        defer { munmap(memory, count) }
        return ward_mlock_on_fault(memory, count) == 0
    }

    /// `count` zero bytes, page-aligned; to be given back with `unmap`. Throws `ENOMEM`.
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

    /// Whether `count` bytes are to be had now, and as much again as the rest of the process may
    /// need meanwhile: for what it can do without, such as one more thread. Small allocations have
    /// no way to fail but its end.
    public static func hasRoom(for count: Int) -> Bool {
        let (bytes, isTooMuch) = count.addingReportingOverflow(spareBytes)
        guard !isTooMuch else { return false }
        guard let memory = reserve(bytes) else { return false }
        munmap(memory, bytes)
        return true
    }

    private static let spareBytes = 8 << 20

    /// Gives back what `map` gave, wiped by its owner.
    public static func unmap(_ memory: UnsafeMutableRawPointer, _ count: Int) {
        locked.withLock { locked in
            locked.bytes -= locked.sizes.removeValue(forKey: UInt(bitPattern: memory)) ?? 0
        }
        munmap(memory, count)
    }
}
