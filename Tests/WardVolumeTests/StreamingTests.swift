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
    }

    @Test("what is forgotten lies behind what was just written", arguments: [0, 1, 4_095, 123_456])
    func passed(offset: Int) {
        let step = Streaming.stepBytes
        var forgotten = 0
        for start in stride(from: offset, to: 10 * step, by: Streaming.smallestRequestBytes) {
            let request = start..<start + Streaming.smallestRequestBytes
            guard let passed = Streaming.passed(by: request) else { continue }
            #expect(passed.lowerBound == forgotten, "each step once, none left out")
            #expect(passed.upperBound + step <= request.upperBound, "one step stays")
            forgotten = passed.upperBound
        }
        #expect(forgotten >= 8 * step)
        let small = 3 * step - 1..<3 * step + Streaming.smallestRequestBytes - 2
        #expect(Streaming.passed(by: small) == nil, "a small request is no stream")
    }

    @Test("a large file goes to the disk while it is written, and can be read all the same")
    func large() throws {
        let (node, handle) = try harness.create("large")
        try grow(handle, to: Streaming.beginBytes)
        #expect(storage.took() == [], "its beginning is like any other file")
        try grow(handle, from: Streaming.beginBytes, to: 24 * Self.mebibyte)
        let calls = storage.took()
        let begun = calls.filter { $0.kind == .begin }.map(\.bytes)
        let forgotten = calls.filter { $0.kind == .forget }.map(\.bytes)
        #expect(begun.count == 16)
        for (one, next) in zip(begun, begun.dropFirst()) {
            #expect(one.upperBound == next.lowerBound, "the last page is written again by the next")
        }
        let layout = harness.volume.layout
        let end = layout.pageCount(forSize: 24 * Self.mebibyte) * layout.pageBytes
        #expect(begun.last?.upperBound == end - harness.volume.pageBytes)
        #expect(
            forgotten.count >= 2
                && forgotten.allSatisfy { $0.upperBound <= end - Streaming.stepBytes })
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
        let kernel = FakeKernel(harness)
        harness.volume.setNotifier(kernel, keepsContent: false)
        let (_, handle) = try harness.create("large")
        try grow(handle, to: 20 * Self.mebibyte)
        #expect(storage.took() == [])
        harness.volume.release(handle, harness.context)
    }

    @Test("a store that can't keep up is left alone for a second")
    func pause() throws {
        let streaming = Streaming()
        let request = 4 * Streaming.beginBytes..<4 * Streaming.beginBytes + Self.mebibyte
        func note() -> Int {
            streaming.noteGrowth(request, pageBytes: 4096, of: -1, storage)
            return storage.took().filter { $0.kind == .begin }.count
        }
        #expect(note() == 1)
        storage.whenTold.withLock {
            $0 = { [storage] in storage.advance(Streaming.slowNanoseconds + 1) }
        }
        #expect(note() == 1, "which takes long")
        storage.whenTold.withLock { $0 = {} }
        #expect(note() == 0)
        storage.advance(Streaming.pauseNanoseconds - 1)
        #expect(note() == 0)
        storage.advance(1)
        #expect(note() == 1)
    }
}

/// The real store, which writes down what it is told about large files.
private final class StreamStorage: PosixStorage, @unchecked Sendable {
    // Sendable: what it adds is behind mutexes.
    struct Call: Equatable {
        enum Kind { case begin, forget }
        var kind: Kind
        var bytes: Range<Int>
    }
    private let calls = Mutex<[Call]>([])
    let whenTold = Mutex<@Sendable () -> Void>({})
    private let time = Atomic<UInt64>(1_000_000_000_000)

    override func nanoseconds() -> UInt64 { time.load(ordering: .relaxed) }
    func advance(_ nanoseconds: UInt64) { time.wrappingAdd(nanoseconds, ordering: .relaxed) }

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
    override func beginWriting(_ descriptor: Int32, _ bytes: Range<Int>) {
        calls.withLock { $0.append(Call(kind: .begin, bytes: bytes)) }
        whenTold.withLock { $0 }()
        super.beginWriting(descriptor, bytes)
    }
}
