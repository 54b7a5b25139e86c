import Synchronization
import WardSystem

/// What a large file leaves in the store's memory when it is written from one end to the other:
/// next to nothing (decision 0069).
///
/// The kernel keeps the plaintext of such a file, which is what programs read again; its ciphertext
/// would be there a second time, in pages that the kernel had to find for it. So what is written
/// behind the first megabytes of a file that grows goes to the disk at once, which the next `fsync`
/// will find done, and what was written some megabytes ago is forgotten: its pages are used again
/// for what comes.
///
/// Whoever has the store begin to write is told, alone, of blocks that ext4 could not find, and
/// then the pages are lost: no sync may be believed before that is noted (`settle`).
///
/// Concurrency: any thread.
final class Streaming: Sendable {
    /// Smaller requests are no stream.
    static let smallestRequestBytes = 64 << 10
    /// A file that ends before this is like any other: it may be gone before the disk would have
    /// heard of it.
    static let beginBytes = 8 << 20
    /// What is forgotten at a time, bytes, and how much of what was just written stays.
    static let stepBytes = 4 << 20
    /// A store that takes longer for being told has more to write than it can: it is left alone for
    /// a while, so that programs go on as fast as memory takes what they write.
    static let slowNanoseconds: UInt64 = 2_000_000
    static let pauseNanoseconds: UInt64 = 1_000_000_000

    private let pausedUntil = Atomic<UInt64>(0)
    /// Held, shared, from before the store is told of any file until its answer is noted.
    private let turn = ReadWriteLock()

    /// Whether the store has less to write than it can.
    func isWelcome(at now: UInt64) -> Bool { now >= pausedUntil.load(ordering: .relaxed) }

    /// Being told took from `begin` to `end`.
    func noteTime(_ begin: UInt64, _ end: UInt64) {
        guard end &- begin > Streaming.slowNanoseconds else { return }
        pausedUntil.store(end &+ Streaming.pauseNanoseconds, ordering: .relaxed)
    }

    /// Runs `body`, which tells the store of `file` and notes what it answers.
    func telling(of file: OpenFile, _ body: () throws(Errno) -> Void) throws(Errno) {
        turn.lockRead()
        file.storeIsTold.lockNow()
        defer {
            file.storeIsTold.unlock()
            turn.unlock()
        }
        try body()
    }

    /// Waits until what the store is being told of a file is noted. After a sync of it that seems
    /// to have succeeded. Another file for which the store hangs does not matter.
    @inline(__always)
    func settle(_ file: OpenFile) {
        file.storeIsTold.lockNow()
        file.storeIsTold.unlock()
    }

    /// Of all files, after a sync of the store.
    func settle() {
        turn.lockWrite()
        turn.unlock()
    }
}

/// How far the store was told to write a file that grows, in bytes of the backing file.
struct StreamedGrowth {
    private var begun = 0..<0
    /// Where what was not forgotten yet begins.
    private var kept = 0

    /// The store has begun to write `range`. Returns what can be forgotten: of what it was told of
    /// without a gap, all but the last whole step.
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
