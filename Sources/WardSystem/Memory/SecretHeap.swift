import CWardLinux
import Glibc
import Synchronization

/// Memory for secrets: pages that are locked (no swap), left out of core dumps, and empty in a
/// forked child. `mlock(2)`, `madvise(2)` `MADV_DONTDUMP`, `MADV_WIPEONFORK`.
///
/// Slots of a few fixed sizes are cut from 16 KiB chunks. They are wiped before they are reused, so
/// a file key costs 32 bytes of `RLIMIT_MEMLOCK` and not a page. Chunks are never given back: there
/// are as many as at the busiest moment.
public final class SecretHeap: Sendable {
    /// The heap of this process.
    public static let shared = SecretHeap()

    static let slotSizes = [32, 64, 128, 256, 1024, 4096, 16384]
    static let chunkBytes = 16384

    private struct State {
        /// The addresses of free slots, by size class.
        var free: [[UInt]] = Array(repeating: [], count: SecretHeap.slotSizes.count)
        var lockedBytes = 0
        /// The addresses of all chunks.
        var chunks: [UInt] = []
    }

    private let state = Mutex(State())

    /// Bytes locked so far, all chunks together.
    public var lockedBytes: Int { state.withLock { $0.lockedBytes } }

    static func sizeClass(_ count: Int) -> Int? {
        slotSizes.firstIndex { $0 >= count }
    }

    /// A zero-filled slot of at least `count` bytes. Throws `ENOMEM` where no more memory may be
    /// locked.
    public func allocate(_ count: Int) throws(Errno) -> UnsafeMutableRawPointer {
        guard let sizeClass = SecretHeap.sizeClass(max(count, 1)) else {
            return try SecretHeap.mapLocked(SecretHeap.roundToPages(count))
        }
        return try state.withLock { (state: inout sending State) throws(Errno) -> UInt in
            if let slot = state.free[sizeClass].popLast() { return slot }
            let chunk = UInt(bitPattern: try SecretHeap.mapLocked(SecretHeap.chunkBytes))
            state.lockedBytes += SecretHeap.chunkBytes
            state.chunks.append(chunk)
            let size = UInt(SecretHeap.slotSizes[sizeClass])
            var slot = chunk + UInt(SecretHeap.chunkBytes)
            while slot > chunk + size {
                slot -= size
                state.free[sizeClass].append(slot)
            }
            return chunk
        }.pointer
    }

    /// Wipes the whole slot and takes it back.
    public func deallocate(_ slot: UnsafeMutableRawPointer, _ count: Int) {
        guard let sizeClass = SecretHeap.sizeClass(max(count, 1)) else {
            let size = SecretHeap.roundToPages(count)
            explicit_bzero(slot, size)
            munmap(slot, size)
            return
        }
        explicit_bzero(slot, SecretHeap.slotSizes[sizeClass])
        let address = UInt(bitPattern: slot)
        state.withLock { $0.free[sizeClass].append(address) }
    }

    /// Wipes all slots, used or not. To be called last in a process, which must not touch a secret
    /// afterwards. The kernel zeroes the pages of a process that ended only when another process
    /// gets them.
    public func wipeEverything() {
        state.withLock { state in
            for chunk in state.chunks { explicit_bzero(chunk.pointer, SecretHeap.chunkBytes) }
        }
    }

    private static func roundToPages(_ count: Int) -> Int { (count + 4095) & ~4095 }

    private static func mapLocked(_ count: Int) throws(Errno) -> UnsafeMutableRawPointer {
        guard
            let memory = mmap(
                nil, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
            memory != MAP_FAILED
        else { throw Errno(rawValue: errno) }
        guard mlock(memory, count) == 0, madvise(memory, count, MADV_DONTDUMP) == 0,
            madvise(memory, count, Int32(18) /* MADV_WIPEONFORK */) == 0
        else {
            let reason = errno
            munmap(memory, count)
            throw Errno(rawValue: reason == EPERM ? ENOMEM : reason)
        }
        return memory
    }
}

extension UInt {
    fileprivate var pointer: UnsafeMutableRawPointer { UnsafeMutableRawPointer(bitPattern: self)! }
}
