import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardVolume

/// Files that are written from one end to the other are not kept in the store's memory (decision 0069).
@Suite struct StreamingTests {
    private static let mebibyte = 1 << 20
    private let storage = StreamStorage()
    private let harness: VolumeHarness

    init() throws { harness = try VolumeHarness(storage: storage) }

    private func grow(
        _ handle: HandleID, from first: Int = 0, to end: Int, by step: Int = mebibyte,
        startingWith start: [UInt8] = []
    ) throws {
        var data = [UInt8](repeating: 7, count: step)
        for offset in stride(from: first, to: end, by: step) {
            if offset == 0, !start.isEmpty { data.replaceSubrange(0..<start.count, with: start) }
            try harness.write(handle, offset, data)
        }
        harness.volume.streaming.drain()
    }

    @Test(
        "what is told is all that grew, and what is forgotten lies behind it",
        arguments: [1, 3, 50])
    func ranges(requestsAtOnce: Int) throws {
        let step = Streaming.stepBytes
        var growth = StreamedGrowth()
        var written = Streaming.beginBytes
        var forgotten = step
        var end = Streaming.beginBytes
        #expect(growth.take() == nil)
        for _ in 0..<40 {
            for request in 0..<requestsAtOnce {
                #expect(growth.note(end..<end + 1_234_567) == (request == 0), "told once")
                end += 1_234_567
            }
            let taken = growth.take()
            let told = try #require(taken)
            #expect(told.written == written..<end)
            written = end
            guard let passed = told.passed else { continue }
            #expect(passed.lowerBound == forgotten && passed.upperBound + step <= end)
            forgotten = passed.upperBound
        }
        #expect(forgotten + 2 * step > end)
        // Cut, and written again.
        _ = growth.note(Streaming.beginBytes..<Streaming.beginBytes + 3 * step)
        #expect(growth.take()?.passed == Streaming.beginBytes..<Streaming.beginBytes + 2 * step)
    }

    @Test("a large file goes to the disk while it is written, and can be read all the same")
    func large() throws {
        let (node, handle) = try harness.create("large")
        try grow(handle, to: Streaming.beginBytes)
        #expect(storage.took() == [], "its beginning is like any other file")
        try grow(handle, from: Streaming.beginBytes, to: 24 * Self.mebibyte)
        let calls = storage.took()
        let forgotten = calls.filter { $0.kind == .forget }.map(\.bytes)
        let layout = harness.volume.layout
        let end = layout.pageCount(forSize: 24 * Self.mebibyte) * layout.pageBytes
        #expect(calls.map(\.bytes.upperBound).max() == end - layout.pageBytes, "not the last page")
        #expect(!forgotten.isEmpty)
        for one in forgotten {
            #expect(one.upperBound + Streaming.stepBytes <= end)
            #expect(
                calls.contains { $0.kind == .begin && $0.bytes == one },
                "nothing is forgotten that is not being written")
        }
        for offset in [0, 5 * Self.mebibyte, 23 * Self.mebibyte] {
            #expect(try harness.read(handle, offset, 8192) == [UInt8](repeating: 7, count: 8192))
        }
        harness.volume.release(handle, harness.context)
        #expect(try harness.size(node) == 24 * Self.mebibyte)
    }

    @Test("what does not grow, comes in small pieces, or is a database stays where it is")
    func others() throws {
        let (_, file) = try harness.create("file")
        try grow(file, to: 12 * Self.mebibyte)
        _ = storage.took()
        try grow(file, from: 9 * Self.mebibyte, to: 12 * Self.mebibyte)
        #expect(storage.took() == [], "written over")
        try grow(file, from: 12 * Self.mebibyte, to: 13 * Self.mebibyte, by: 32 << 10)
        #expect(storage.took() == [], "small writes")
        harness.volume.release(file, harness.context)
        let (_, database) = try harness.create("database")
        try grow(database, to: 12 * Self.mebibyte, startingWith: Array("SQLite format 3\0".utf8))
        // What asks whether it is one: a side file that is made beside it.
        let (_, side) = try harness.create("database-wal")
        _ = storage.took()
        try grow(database, from: 12 * Self.mebibyte, to: 16 * Self.mebibyte)
        #expect(storage.took() == [], "a database, whose pages are written over next")
        for handle in [database, side] { harness.volume.release(handle, harness.context) }
    }

    @Test("where the kernel does not keep content, the store does")
    func sharedStorage() throws {
        try harness.reopen(storage: storage, kernelKeepsContent: false)
        let (_, handle) = try harness.create("large")
        try grow(handle, to: 20 * Self.mebibyte)
        #expect(storage.took() == [])
        harness.volume.release(handle, harness.context)
    }

    @Test("what the store answers to being told is told by the next fsync, once")
    func failure() throws {
        let (_, handle) = try harness.create("large")
        try grow(handle, to: 10 * Self.mebibyte)
        try harness.volume.fsync(handle, dataOnly: false, harness.context)
        storage.failure.withLock { $0 = .noSpace }
        try grow(handle, from: 10 * Self.mebibyte, to: 11 * Self.mebibyte)
        storage.failure.withLock { $0 = nil }
        #expect(harness.volume.isInDoubt, "as after any sync that failed")
        #expect(throws: Errno.noSpace) {
            try harness.volume.fsync(handle, dataOnly: false, harness.context)
        }
        try harness.volume.fsync(handle, dataOnly: false, harness.context)
        #expect(throws: Errno.self, "the whole store") {
            storage.failure.withLock { $0 = .noSpace }
            try grow(handle, from: 11 * Self.mebibyte, to: 12 * Self.mebibyte)
            try harness.volume.syncBackingStore(
                since: harness.volume.syncFailures.load(ordering: .relaxed) - 1)
        }
        harness.volume.release(handle, harness.context)
    }

    @Test("a sync waits until the answer is noted, and for nothing else")
    func order() throws {
        let (_, handle) = try harness.create("large")
        try grow(handle, to: 10 * Self.mebibyte)
        storage.hanging.lockNow()
        storage.failure.withLock { $0 = .noSpace }
        try harness.write(handle, 10 * Self.mebibyte, [UInt8](repeating: 7, count: Self.mebibyte))
        while storage.isTold.load(ordering: .acquiring) == false { usleep(100) }
        // Programs go on.
        try harness.write(handle, 11 * Self.mebibyte, [UInt8](repeating: 7, count: Self.mebibyte))
        let volume = harness.volume
        let result = Mutex<Errno?>(nil)
        let other = SystemThread.start("sync") {
            let context = WorkerContext(volume: volume)
            do throws(Errno) {
                try volume.fsync(handle, dataOnly: false, context)
            } catch {
                result.withLock { $0 = error }
            }
        }
        usleep(20_000)
        storage.hanging.unlock()
        other.join()
        #expect(result.withLock { $0 } == .noSpace)
        harness.volume.release(handle, harness.context)
    }
}

/// The real store, which writes down what it is told about large files.
private final class StreamStorage: PosixStorage, @unchecked Sendable {
    // Sendable: what it adds are atomics, or behind mutexes.
    struct Call: Equatable {
        enum Kind { case begin, forget }
        var kind: Kind
        var bytes: Range<Int>
    }
    private let calls = Mutex<[Call]>([])
    let failure = Mutex<Errno?>(nil)
    /// While somebody holds it, the store does not answer.
    let hanging = TryableLock()
    let isTold = Atomic<Bool>(false)

    /// Since it was last asked.
    func took() -> [Call] {
        calls.withLock { calls in
            defer { calls = [] }
            return calls
        }
    }

    override func forgetCached(_ descriptor: Int32, _ bytes: Range<Int>) {
        calls.withLock { $0.append(Call(kind: .forget, bytes: bytes)) }
        super.forgetCached(descriptor, bytes)
    }
    override func beginWriting(_ descriptor: Int32, _ bytes: Range<Int>) throws(Errno) {
        if bytes.upperBound < .max {
            calls.withLock { $0.append(Call(kind: .begin, bytes: bytes)) }
        }
        let failure = failure.withLock { $0 }
        if failure != nil { isTold.store(true, ordering: .releasing) }
        hanging.lockNow()
        hanging.unlock()
        if let failure { throw failure }
        try super.beginWriting(descriptor, bytes)
    }
}
