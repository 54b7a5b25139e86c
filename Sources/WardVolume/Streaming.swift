import Glibc
import Synchronization
import WardFormat
import WardSystem

/// What a large file leaves in the store's memory when it is written from one end to the other: next to nothing (decision 0069).
///
/// The kernel keeps the plaintext of such a file, which is what programs read again; its ciphertext would be there a second
/// time, in pages that the kernel had to find for it. So what is written behind the first megabytes of a file that grows goes
/// to the disk at once, which the next `fsync` will find done, and what was written some megabytes ago is forgotten: its
/// pages are used again for what comes.
///
/// Nothing is promised by this, and nothing relies on it: the kernel may write pages and forget them whenever it likes.
/// Concurrency: any thread; it is one atomic.
final class Streaming: Sendable {
    /// Smaller requests are no stream.
    static let smallestRequestBytes = 64 << 10
    /// A file that ends before this is like any other: it may be gone before the disk would have heard of it.
    static let beginBytes = 8 << 20
    /// What is forgotten at a time, bytes, and how much of what was just passed stays.
    static let stepBytes = 4 << 20
    /// A store that takes longer for being told has more to write than it can: it is left alone for a while, so that
    /// programs go on as fast as memory takes what they write.
    static let slowNanoseconds: UInt64 = 2_000_000
    static let pauseNanoseconds: UInt64 = 1_000_000_000

    private let pausedUntil = Atomic<UInt64>(0)

    /// Bytes of the backing file that can be forgotten once a request for `range` of it was served: the step before the last
    /// whole one, where the request has come to the end of a step. Nil in most cases.
    static func passed(by range: Range<Int>) -> Range<Int>? {
        guard range.count >= smallestRequestBytes else { return nil }
        let step = range.upperBound / stepBytes
        guard step > range.lowerBound / stepBytes, step >= 2 else { return nil }
        return (step - 2) * stepBytes..<(step - 1) * stepBytes
    }

    /// After a request has made the file longer by writing `range` of the backing file; `pageBytes`: its last page, which the
    /// next request will write again.
    @inline(__always)
    func noteGrowth(
        _ range: Range<Int>, pageBytes: Int, of descriptor: Int32, _ storage: any Storage
    ) {
        guard range.count >= Streaming.smallestRequestBytes,
            range.lowerBound >= Streaming.beginBytes
        else { return }
        let begin = storage.nanoseconds()
        guard begin >= pausedUntil.load(ordering: .relaxed) else { return }
        storage.beginWriting(descriptor, range.lowerBound..<range.upperBound - pageBytes)
        if let passed = Streaming.passed(by: range) { storage.forgetCached(descriptor, passed) }
        let end = storage.nanoseconds()
        if end &- begin > Streaming.slowNanoseconds {
            pausedUntil.store(end &+ Streaming.pauseNanoseconds, ordering: .relaxed)
        }
    }
}
