import Glibc
import Synchronization
import Testing
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

/// Files that are written from one end to the other do not stay in the page cache of the backing
/// store (decision 0069).
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
    }

    @Test("what is forgotten lies behind what was just written, and was told of")
    func ranges() throws {
        let step = Streaming.stepBytes
        var growth = StreamedGrowth()
        var forgotten = 2 * step
        var end = Streaming.beginBytes
        for _ in 0..<60 {
            let passed = growth.note(end..<end + 1_234_567)
            end += 1_234_567
            guard let passed else { continue }
            #expect(passed.lowerBound == forgotten && passed.upperBound + step <= end)
            forgotten = passed.upperBound
        }
        #expect(forgotten + 2 * step > end)
        // After a gap, which the store was told nothing about.
        let next = end + 100
        let afterGap = growth.note(next..<next + 4 * step)
        #expect(afterGap?.lowerBound == (next + step - 1) / step * step)
        // Cut, and written again.
        let again = growth.note(Streaming.beginBytes..<Streaming.beginBytes + 3 * step)
        #expect(again == Streaming.beginBytes..<Streaming.beginBytes + 2 * step)
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
        // Making a side file asks whether the file is a database.
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

    @Test("a file that a lock closes is left to the kernel", arguments: ["A", "B", "C", "D"])
    func classes(_ spelling: String) throws {
        let (node, handle) = try harness.create("large")
        try harness.setClass(node, spelling)
        try grow(handle, to: 12 * Self.mebibyte)
        #expect(storage.took().isEmpty == ["A", "B"].contains(spelling))
        harness.volume.release(handle, harness.context)
    }

    @Test("what the store could not take is told by the write and by the next fsync, once")
    func failure() throws {
        let (_, handle) = try harness.create("large")
        try grow(handle, to: 10 * Self.mebibyte)
        try harness.volume.fsync(handle, dataOnly: false, harness.context)
        storage.failure.withLock { $0 = .noSpace }
        #expect(throws: Errno.noSpace) {
            try grow(handle, from: 10 * Self.mebibyte, to: 11 * Self.mebibyte)
        }
        storage.failure.withLock { $0 = nil }
        #expect(harness.volume.isInDoubt, "as after any sync that failed")
        #expect(throws: Errno.noSpace) {
            try harness.volume.fsync(handle, dataOnly: false, harness.context)
        }
        try harness.volume.fsync(handle, dataOnly: false, harness.context)
        storage.failure.withLock { $0 = .noMemory }
        try grow(handle, from: 11 * Self.mebibyte, to: 12 * Self.mebibyte)
        try harness.volume.fsync(handle, dataOnly: false, harness.context)
        harness.volume.release(handle, harness.context)
    }

    @Test("no sync is believed before the answer is noted", arguments: [true, false])
    func order(ofTheStore: Bool) throws {
        let (_, handle) = try harness.create("large")
        let (_, small) = try harness.create("small")
        try grow(handle, to: 10 * Self.mebibyte)
        storage.hanging.lock()
        storage.failure.withLock { $0 = .noSpace }
        let volume = harness.volume
        let caller = harness.caller
        let writer = SystemThread.start("write") {
            let context = WorkerContext(volume: volume)
            let data = [UInt8](repeating: 7, count: Self.mebibyte)
            _ = data.withUnsafeBytes { bytes in
                try? volume.write(
                    handle, offsetBytes: UInt64(10 * Self.mebibyte), bytes, flags: [],
                    caller: caller, context)
            }
        }
        let isTold = comesTrue { storage.isTold.load(ordering: .acquiring) }
        #expect(isTold, "the store is told of the new pages")
        // Other files are synced meanwhile.
        try harness.write(small, 0, [1])
        try harness.volume.fsync(small, dataOnly: false, harness.context)
        storage.isSynced.store(false, ordering: .releasing)
        let told = Mutex<Errno?>(nil)
        let isOver = Atomic(false)
        let other = SystemThread.start("sync") {
            defer { isOver.store(true, ordering: .releasing) }
            let file = handle.object(as: FileHandle.self).file
            do throws(Errno) {
                if ofTheStore {
                    try volume.durability.sync()
                } else {
                    try volume.sync(file, dataOnly: true)
                    if file.syncs.failures > 0 { throw file.syncs.lastFailure }
                }
            } catch {
                told.withLock { $0 = error }
            }
        }
        // The worker counts the failures before it syncs, and there is none yet. Then it might
        // trust the sync too early.
        _ = comesTrue(within: 30) { storage.isSynced.load(ordering: .acquiring) }
        let isEarly = comesTrue(within: 0.05) { isOver.load(ordering: .acquiring) }
        #expect(!isEarly, "the sync ends before the store has answered the worker")
        storage.hanging.unlock()
        other.join()
        writer.join()
        let isSynced = storage.isSynced.load(ordering: .acquiring)
        #expect(isSynced, "the test means a sync that comes to the store first")
        #expect(told.withLock { $0 } == (ofTheStore ? .ioError : .noSpace))
        for one in [handle, small] { harness.volume.release(one, harness.context) }
    }

    @Test("a store that can't keep up is left alone for a second")
    func pause() throws {
        let (_, handle) = try harness.create("large")
        var end = Streaming.beginBytes
        try grow(handle, to: end)
        func grows() throws -> Bool {
            try grow(handle, from: end, to: end + Self.mebibyte)
            end += Self.mebibyte
            return storage.took().contains { $0.kind == .begin }
        }
        #expect(try grows())
        storage.delay.store(Streaming.slowNanoseconds + 1, ordering: .relaxed)
        #expect(try grows(), "which takes long")
        storage.delay.store(0, ordering: .relaxed)
        #expect(try !grows())
        storage.advance(Streaming.pauseNanoseconds - 1)
        #expect(try !grows())
        storage.advance(1)
        #expect(try grows())
        harness.volume.release(handle, harness.context)
    }
}

/// The real backing store, which notes what it is told about large files.
private final class StreamStorage: ManualStorage, @unchecked Sendable {
    // Sendable: the added state is atomic or behind mutexes.
    struct Call: Equatable {
        enum Kind { case begin, forget }
        var kind: Kind
        var bytes: Range<Int>
    }
    private let calls = Mutex<[Call]>([])
    let failure = Mutex<Errno?>(nil)
    let isTold = Atomic<Bool>(false)
    /// Whether the last call of a sync, of a file's content or of the store, is done.
    let isSynced = Atomic<Bool>(false)
    /// How long a note to the store takes, nanoseconds.
    let delay = Atomic<UInt64>(0)

    /// The calls since the last `took`.
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
    override func fdatasync(_ descriptor: Int32) throws(Errno) {
        try super.fdatasync(descriptor)
        isSynced.store(true, ordering: .releasing)
    }
    override func fsync(_ descriptor: Int32) throws(Errno) {
        try super.fsync(descriptor)
        isSynced.store(true, ordering: .releasing)
    }
    override func beginWriting(_ descriptor: Int32, _ bytes: Range<Int>) throws(Errno) {
        calls.withLock { $0.append(Call(kind: .begin, bytes: bytes)) }
        advance(delay.load(ordering: .relaxed))
        let failure = failure.withLock { $0 }
        if failure != nil { isTold.store(true, ordering: .releasing) }
        waitWhileHanging()
        if let failure { throw failure }
        try super.beginWriting(descriptor, bytes)
    }
}
