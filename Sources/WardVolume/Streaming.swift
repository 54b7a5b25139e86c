import Synchronization
import WardSystem

/// What a large file leaves in the store's memory when it is written from one end to the other: next to nothing (decision 0069).
///
/// The kernel keeps the plaintext of such a file, which is what programs read again; its ciphertext would be there a second
/// time, in pages that the kernel had to find for it. So what is written behind the first megabytes of a file that grows goes
/// to the disk at once, which the next `fsync` will find done, and what was written some megabytes ago is forgotten: its
/// pages are used again for what comes.
///
/// The store is told on a thread of its own: where it is slow, that waits, and programs go on. What it answers is what a sync
/// would have been told (ext4 tells of blocks that it could not find to whoever began to write, and to nobody else), so that
/// no sync is believed before the answer is noted: `settle`.
///
/// Concurrency: any thread.
final class Streaming: Sendable {
    /// Smaller requests are no stream.
    static let smallestRequestBytes = 64 << 10
    /// A file that ends before this is like any other: it may be gone before the disk would have heard of it.
    static let beginBytes = 8 << 20
    /// What is forgotten at a time, bytes, and how much of what was just written stays.
    static let stepBytes = 4 << 20

    private let queue = BackgroundQueue(name: "ward-stream")
    /// Held from before the store is told until its answer is noted.
    private let turn = TryableLock()

    /// Runs `body` later, and no sync is believed in the middle of it.
    func tell(_ body: @escaping @Sendable () -> Void) {
        queue.run { [self] in
            turn.lockNow()
            body()
            turn.unlock()
        }
    }

    /// Runs `body` now, likewise.
    func telling<R>(_ body: () -> R) -> R {
        turn.lockNow()
        defer { turn.unlock() }
        return body()
    }

    /// Waits until the answer to what the store is being told is noted. After a sync that seems to have succeeded.
    @inline(__always)
    func settle() {
        turn.lockNow()
        turn.unlock()
    }

    /// Waits until nothing is left to tell. For tests.
    func drain() { queue.drain() }
}

/// How a file grew that the store has not been told of, in bytes of the backing file.
struct StreamedGrowth {
    private var pending: Range<Int>?
    /// Where what was not forgotten yet begins. Page 0 stays.
    private var kept = Streaming.stepBytes

    /// `range` was written behind the end. True where the store is to be told, which `take` does for all that came until then.
    mutating func note(_ range: Range<Int>) -> Bool {
        defer {
            pending =
                pending.map {
                    min($0.lowerBound, range.lowerBound)..<max($0.upperBound, range.upperBound)
                } ?? range
        }
        return pending == nil
    }

    /// What to write, and what to forget.
    mutating func take() -> (written: Range<Int>, passed: Range<Int>?)? {
        guard let written = pending else { return nil }
        pending = nil
        let step = Streaming.stepBytes
        // It was cut, and grows again.
        if written.lowerBound < kept { kept = max(step, written.lowerBound / step * step) }
        let end = (written.upperBound / step - 1) * step
        guard end > kept else { return (written, nil) }
        defer { kept = end }
        return (written, kept..<end)
    }
}
