import Synchronization
import WardSystem

/// Keeps large files that are written from one end to the other out of the backing store's memory
/// (decision 0069).
///
/// The kernel keeps the plaintext of such a file, which programs read again. The ciphertext would
/// take as many pages once more. So bytes behind the first megabytes of a growing file go to the
/// disk at once, and the next `fsync` finds that done. Bytes that were written some megabytes ago
/// are forgotten: the kernel uses their pages again.
///
/// Where ext4 finds no blocks for the bytes, the pages are lost. The error goes only to the thread
/// that began the writing, and a later fsync succeeds nevertheless. So a sync counts only after
/// the answer to that thread is noted (`settle`).
///
/// Concurrency: any thread.
final class Streaming: Sendable {
    /// Smaller requests are not streamed.
    static let smallestRequestBytes = 64 << 10
    /// A file that ends before this is treated like any other: it may be removed before it would
    /// have reached the disk.
    static let beginBytes = 8 << 20
    /// How many bytes are forgotten at a time, and how many of the last ones stay.
    static let stepBytes = 4 << 20
    /// A backing store that takes longer to begin writing is overloaded. It is left alone for a
    /// while, so that programs write on at the speed of memory.
    static let slowNanoseconds: UInt64 = 2_000_000
    static let pauseNanoseconds: UInt64 = 1_000_000_000

    private let pausedUntil = Atomic<UInt64>(0)
    /// Read-locked while a thread tells the backing store to begin writing, for any file, until the
    /// answer is noted.
    private let turn = ReadWriteLock(.streaming)

    /// False for a while after the backing store was slow.
    func isWelcome(at now: UInt64) -> Bool { now >= pausedUntil.load(ordering: .relaxed) }

    /// Notes that beginning to write took from `begin` to `end`.
    func noteTime(_ begin: UInt64, _ end: UInt64) {
        guard end &- begin > Streaming.slowNanoseconds else { return }
        pausedUntil.store(end &+ Streaming.pauseNanoseconds, ordering: .relaxed)
    }

    /// Runs `body`, which has the backing store begin to write `file` and notes its answer.
    func telling(
        of file: OpenFile, _ body: (inout StreamedGrowth) throws(Errno) -> Void
    ) throws(Errno) {
        try turn.withReadLock { () throws(Errno) in try file.streamed.telling(body) }
    }

    /// Waits until the answers for a file are noted. Called after a sync of it that seems to have
    /// succeeded. A backing store that hangs on another file does not matter.
    @inline(__always)
    func settle(_ file: OpenFile) {
        file.streamed.settle()
    }

    /// Waits for the answers of all files. Called after a sync of the backing store.
    func settle() {
        turn.withWriteLock {}
    }
}

/// The writes of one file that are streamed.
final class StreamedWrites: @unchecked Sendable {
    // Sendable: `isTold` guards `growth`.
    /// Held from telling the backing store to write until its answer is noted.
    private let isTold = Lock(.storeIsTold)
    /// How much of the growth by large writes the backing store has begun to write.
    private var growth = StreamedGrowth()

    /// Runs `body`, which tells the backing store to write, and notes its answer.
    func telling(_ body: (inout StreamedGrowth) throws(Errno) -> Void) throws(Errno) {
        try isTold.withLock { () throws(Errno) in try body(&growth) }
    }

    /// Waits until the answer is noted.
    @inline(__always)
    func settle() { isTold.withLock {} }
}

/// How far the backing store has begun to write a growing file, in bytes of the backing file.
struct StreamedGrowth {
    private var begun = 0..<0
    /// Where the bytes begin that are not forgotten yet.
    private var kept = 0

    /// Notes that the backing store has begun to write `range`. Returns the bytes to forget: those
    /// begun without a gap, up to the last whole step but one. With steps of 4 MiB and 11 MiB begun
    /// these are the first 4 MiB.
    mutating func note(_ range: Range<Int>) -> Range<Int>? {
        let step = Streaming.stepBytes
        if range.lowerBound == begun.upperBound {
            begun = begun.lowerBound..<range.upperBound
        } else {
            begun = range
            kept = (range.lowerBound + step - 1) / step * step
        }
        let end = (begun.upperBound / step - 1) * step
        guard end > kept else { return nil }
        defer { kept = end }
        return kept..<end
    }
}
