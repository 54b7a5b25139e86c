import Foundation
import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardVolume

/// A program that reads through a tree of small files finds the next ones in memory (decision
/// 0070).
@Suite struct TreeReadAheadTests {
    private static let cold = TreeReadAhead.coldNanoseconds
    private let storage = AheadStorage()
    private let ahead: TreeReadAhead
    private let root: String

    init() throws {
        ahead = TreeReadAhead(storage, isUseful: true)
        root = NSTemporaryDirectory() + "ward-ahead-" + UUID().uuidString
        try FileManager.default.createDirectory(
            atPath: root, withIntermediateDirectories: true)
    }

    private func make(_ directory: String, files: Int) throws {
        try FileManager.default.createDirectory(
            atPath: "\(root)/\(directory)", withIntermediateDirectories: true)
        for number in 0..<files {
            try Data([1]).write(to: URL(fileURLWithPath: "\(root)/\(directory)/f\(number)"))
        }
    }

    private func remove() { try? FileManager.default.removeItem(atPath: root) }

    private func inode(_ path: String) throws -> UInt64 {
        var status = stat()
        try #require(lstat("\(root)/\(path)", &status) == 0)
        return UInt64(status.st_ino)
    }

    /// The paths below the root that this process has open.
    private func openPaths() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)")
        }.filter { $0.hasPrefix(root) }
    }

    /// Notes that a program used `path` and waited `waited` nanoseconds.
    private func use(_ path: String, waited: UInt64, andWaits: Bool = true) throws {
        let parts = path.split(separator: "/")
        let directory = parts.dropLast().joined(separator: "/")
        let above = parts.dropLast(2).joined(separator: "/")
        var isDirectory: ObjCBool = false
        _ = FileManager.default.fileExists(atPath: "\(root)/\(path)", isDirectory: &isDirectory)
        ahead.note(
            isDirectory.boolValue ? .directories : .files, try inode(path),
            in: try inode(directory),
            below: try inode(above), waited: waited
        ) {
            let opened = try? storage.openat(
                AT_FDCWD, "\(root)/\(directory)", O_RDONLY | O_DIRECTORY, mode: 0)
            return opened.map { StoreDescriptor($0, storage) }
        }
        if andWaits { ahead.drain() }
    }

    @Test("two files of a directory that waited for the disk bring those beside them")
    func files() throws {
        defer { remove() }
        try make("d", files: 12)
        try use("d/f0", waited: Self.cold)
        #expect(storage.took() == [], "one file alone")
        try use("d/f0", waited: Self.cold)
        #expect(storage.took() == [], "and again")
        try use("d/f1", waited: Self.cold)
        #expect(Set(storage.took()).count == 10, "all but those that were just used")
        for number in 2..<12 { try use("d/f\(number)", waited: 0) }
        #expect(storage.took() == [])
    }

    /// Inodes of the entries whose names begin with `prefix`, in the order of the store's listing.
    private func listed(_ directory: String, _ prefix: Character) throws -> [UInt64] {
        let plain = PosixStorage()
        let descriptor = try plain.openat(
            AT_FDCWD, "\(root)/\(directory)", O_RDONLY | O_DIRECTORY, mode: 0)
        defer { plain.close(descriptor) }
        return try DirectoryReading.entries(of: descriptor, from: 0)
            .filter { $0.entry.name.first == prefix.asciiValue }.map(\.entry.inode)
    }

    /// Drops the first entries, until those at `index` and behind it do not follow each other in
    /// the order of inodes.
    private func untilApart(_ listed: [UInt64], at index: Int) throws -> [UInt64] {
        let sorted = listed.sorted()
        let start = try #require(
            listed.indices.dropLast(index + 1).first {
                sorted.firstIndex(of: listed[$0 + index])! + 1
                    != sorted.firstIndex(of: listed[$0 + index + 1])!
            })
        return Array(listed[start...])
    }

    private func path(_ inode: UInt64, in directory: String) throws -> String {
        let names = try FileManager.default.contentsOfDirectory(atPath: "\(root)/\(directory)")
        let name = try #require(names.first { (try? self.inode("\(directory)/\($0)")) == inode })
        return "\(directory)/\(name)"
    }

    @Test("who reads files as they are listed finds the next ones in that order")
    func listingOrder() throws {
        defer { remove() }
        try make("d", files: 100)
        let inodes = try untilApart(try listed("d", "f"), at: 30)
        for inode in inodes[30...31] { try use(try path(inode, in: "d"), waited: Self.cold) }
        #expect(Set(storage.took()) == Set(inodes[32..<52]))
        for inode in inodes[32..<40] { try use(try path(inode, in: "d"), waited: 0) }
        #expect(Set(storage.took()) == Set(inodes[52..<70]))
    }

    @Test("directories are fetched as they are listed, and so are the files in them")
    func listingOrderOfDirectories() throws {
        defer { remove() }
        for number in 0..<40 { try make("t/d\(number)", files: 50) }
        let inodes = try untilApart(try listed("t", "d"), at: 0)
        let directories = try inodes.map { try path($0, in: "t") }
        for directory in directories[..<2] { try use(directory, waited: Self.cold) }
        #expect(
            Set(storage.tookInodes())
                == Set(try directories[2..<10].flatMap { try listed($0, "f") }))
        for directory in directories[2..<4] {
            for inode in try listed(directory, "f")[..<2] {
                try use(try path(inode, in: directory), waited: Self.cold)
            }
        }
        _ = storage.took()
        for directory in directories[2..<4] { try use(directory, waited: 0) }
        #expect(
            Set(storage.took())
                == Set(try directories[10..<16].flatMap { try listed($0, "f")[..<16] }))
    }

    @Test(
        "of a directory that somebody will come to all inodes, and where there are many, one of sixteen"
    )
    func inodes() throws {
        defer { remove() }
        try make("t/d0", files: 1)
        try make("t/d1", files: 1)
        try make("t/d2", files: TreeReadAhead.mostInodes)
        try make("t/d3", files: TreeReadAhead.mostInodes + 1)
        for number in 0..<2 { try use("t/d\(number)", waited: Self.cold) }
        let taken = Set(storage.tookInodes())
        #expect(taken.isSuperset(of: try listed("t/d2", "f")))
        let some = taken.intersection(try listed("t/d3", "f"))
        let groups = Set(try listed("t/d3", "f").map { $0 / TreeReadAhead.inodesTogether })
        #expect(some.count == groups.count && groups.count < TreeReadAhead.mostInodes)
    }

    @Test("once nobody is at the directories any more, no further inodes of one are asked for")
    func inodesOfForgotten() throws {
        defer { remove() }
        try make("t/d0", files: 1)
        try make("t/d1", files: 1)
        try make("t/d2", files: 100)
        let (storage, ahead) = (storage, ahead)
        storage.atNextInode {
            storage.advance(TreeReadAhead.patienceNanoseconds + 1)
            ahead.note(.files, 1, in: 2, below: nil, waited: 0) { nil }
        }
        for number in 0..<2 { try use("t/d\(number)", waited: Self.cold) }
        #expect((1..<64).contains(storage.tookInodes().count))
    }

    @Test("a directory that is not known any more when its listing is there is left alone")
    func listedTooLate() throws {
        let place = KnownDirectories.Place(directory: 7, kind: .files)
        let entries = (0..<20 as Range<UInt64>).map { ReadAheadPlan.Entry(inode: $0, name: [0]) }
        let root = StoreDescriptor(
            try storage.openat(AT_FDCWD, root, O_RDONLY | O_DIRECTORY, mode: 0), storage)
        defer { remove() }
        let listing = KnownDirectories.Listing(
            plan: ReadAheadPlan(entries, .files), directory: root)
        var known = KnownDirectories()
        for inode: UInt64 in 5...6 {
            _ = known.use(inode, of: place, below: nil, isCold: true, at: 1)
        }
        known.forget(place)
        #expect(known.adopt(listing, of: place).isEmpty && known.isEmpty)
        // A directory that a program will come to.
        #expect(known.expect(listing, of: place, at: 1).count == 16)
        #expect(known.expect(listing, of: place, at: 1).isEmpty)
        #expect(known.adopt(listing, of: place).isEmpty)
        known.forgetAll()
        withExtendedLifetime(known.takeDropped()) {}
    }

    @Test("files that were in memory bring nothing, and neither do those that come one by one")
    func warm() throws {
        defer { remove() }
        try make("d", files: 12)
        for number in 0..<12 { try use("d/f\(number)", waited: Self.cold - 1) }
        #expect(storage.took() == [])
        for number in 0..<12 {
            try use("d/f\(number)", waited: Self.cold)
            storage.advance(TreeReadAhead.togetherNanoseconds + 1)
        }
        #expect(storage.took() == [])
    }

    @Test("where what was fetched is in memory already, no more is")
    func inMemory() throws {
        defer { remove() }
        try make("d", files: 100)
        storage.isInMemory.store(true, ordering: .relaxed)
        try use("d/f0", waited: Self.cold)
        try use("d/f1", waited: Self.cold)
        #expect(storage.took().count == 20)
        for number in 2..<100 { try use("d/f\(number)", waited: Self.cold) }
        #expect(storage.took() == [])
    }

    @Test("directories: names and inodes, and files only where files are read")
    func directories() throws {
        defer { remove() }
        for number in 0..<30 { try make("t/d\(number)", files: 20) }
        try use("t/d0", waited: Self.cold)
        try use("t/d1", waited: Self.cold)
        #expect(storage.tookListed() >= 5)
        #expect(storage.took() == [])
        // A program reads files in two directories.
        for directory in 0..<2 {
            for file in 0..<2 { try use("t/d\(directory)/f\(file)", waited: Self.cold) }
        }
        _ = storage.took()
        for number in 2..<30 { try use("t/d\(number)", waited: 0) }
        let fetched = storage.took()
        #expect(!fetched.isEmpty, "the first files of directories that nobody has come to yet")
    }

    @Test("what is not used any more is forgotten, with its descriptors")
    func forgotten() throws {
        defer { remove() }
        try make("d", files: 30)
        try make("e", files: 1)
        try use("d/f0", waited: Self.cold)
        try use("d/f1", waited: Self.cold)
        #expect(try openPaths() == ["\(root)/d"])
        storage.advance(TreeReadAhead.patienceNanoseconds + 1)
        try use("e/f0", waited: 0)
        #expect(try openPaths() == [])
    }

    @Test("of many directories those that were used last are known, and not too many names")
    func many() throws {
        defer { remove() }
        let count = TreeReadAhead.mostPlans + 1
        for number in 0..<count { try make("t/d\(number)", files: 3) }
        for number in 0..<count {
            storage.advance(1)
            for file in 0..<2 { try use("t/d\(number)/f\(file)", waited: Self.cold) }
            #expect(storage.took().count == 1, "the one that was not just used")
        }
        // The first directory was forgotten and begins anew; the last one is known and has nothing
        // left.
        for (number, fetched) in [(count - 1, 0), (0, 1)] {
            for file in 0..<2 { try use("t/d\(number)/f\(file)", waited: Self.cold) }
            #expect(storage.took().count == fetched)
        }
    }

    @Test("a store that hangs: no more than a few jobs wait, and nothing stays open for the rest")
    func hanging() throws {
        defer { remove() }
        for number in 0..<200 { try make("t/d\(number)", files: 3) }
        storage.hanging.lock()
        for number in 0..<200 {
            storage.advance(1)
            for file in 0..<2 {
                try use("t/d\(number)/f\(file)", waited: Self.cold, andWaits: false)
            }
        }
        storage.advance(TreeReadAhead.patienceNanoseconds + 1)
        try make("e", files: 1)
        try use("e/f0", waited: 0, andWaits: false)
        #expect(try openPaths().count <= TreeReadAhead.mostJobs + 2 * TreeReadAhead.threads)
        storage.hanging.unlock()
        ahead.drain()
    }

    @Test("files that don't open are no reason to go on")
    func forbidden() throws {
        defer { remove() }
        try make("d", files: 100)
        storage.isForbidden.store(true, ordering: .relaxed)
        for number in 0..<100 { try use("d/f\(number)", waited: Self.cold) }
        #expect(storage.refused == 20)
    }

    @Test("an empty file, and one that was just written, need not be fetched")
    func inMemoryAlready() throws {
        defer { remove() }
        try make("d", files: 1)
        try Data().write(to: URL(fileURLWithPath: "\(root)/d/empty"))
        let plain = PosixStorage()
        for name in ["empty", "f0"] {
            let descriptor = try plain.openat(AT_FDCWD, "\(root)/d/\(name)", O_RDONLY, mode: 0)
            #expect(plain.readAhead(descriptor, 0..<4096), "\(name)")
            plain.close(descriptor)
        }
    }

    @Test("what is fetched keeps its time of access")
    func accessTimes() throws {
        defer { remove() }
        try make("d", files: 12)
        let old = [
            timespec(tv_sec: 1_000_000, tv_nsec: 0), timespec(tv_sec: 1_000_000, tv_nsec: 0),
        ]
        for path in (0..<12).map({ "d/f\($0)" }) + ["d"] {
            try #require(utimensat(AT_FDCWD, "\(root)/\(path)", old, 0) == 0)
        }
        for number in 0..<2 { try use("d/f\(number)", waited: Self.cold) }
        #expect(Set(storage.took()).count == 10)
        for path in (0..<12).map({ "d/f\($0)" }) + ["d"] {
            var status = stat()
            try #require(lstat("\(root)/\(path)", &status) == 0)
            #expect(status.st_atim.tv_sec == 1_000_000, "\(path)")
        }
    }

    @Test("a directory of very many names is left alone")
    func tooMany() throws {
        defer { remove() }
        try make("d", files: TreeReadAhead.mostNames + 1)
        for number in 0..<3 { try use("d/f\(number)", waited: Self.cold) }
        #expect(storage.took() == [])
    }

    @Test("nothing where it is of no use")
    func useless() throws {
        defer { remove() }
        let none = TreeReadAhead(storage, isUseful: false)
        #expect(try none.time { () throws(Errno) in storage.advance(Self.cold) }.waited == nil)
    }

    @Test("programs that ask for several things at once are left alone")
    func parallel() throws {
        defer { remove() }
        func use(_ wait: UInt64, _ inner: () throws(Errno) -> Void = {}) throws -> UInt64? {
            try ahead.time { () throws(Errno) in
                try inner()
                storage.advance(wait)
            }.waited
        }
        #expect(try use(Self.cold - 1) == nil, "in memory, and nothing is known")
        #expect(try use(Self.cold) == Self.cold)
        var inner: UInt64??
        let outer = try use(Self.cold) { inner = try? use(Self.cold) }
        #expect(inner == .some(nil) && outer == nil)
        #expect(try use(Self.cold) == nil, "for a while")
        storage.advance(TreeReadAhead.parallelNanoseconds)
        #expect(try use(Self.cold) == Self.cold)
        #expect(throws: Errno.self) {
            try ahead.time { () throws(Errno) -> Void in throw .ioError }
        }
        #expect(try use(Self.cold) == Self.cold, "what failed is under way no more")
    }

    @Test("nothing where nothing is on a disk, and nothing after the end")
    func stopped() throws {
        defer { remove() }
        try make("d", files: 30)
        ahead.stop()
        #expect(try ahead.time { () throws(Errno) in storage.advance(Self.cold) }.waited == nil)
        try use("d/f0", waited: Self.cold)
        try use("d/f1", waited: Self.cold)
        #expect(storage.took() == [])
    }

    @Test("a volume on a slow disk: files are read right, and most before they are asked for")
    func volume() throws {
        defer { remove() }
        let harness = try VolumeHarness(storage: storage)
        func content(_ number: Int) -> [UInt8] { Array("file \(number)".utf8) }
        for number in 0..<40 {
            let (node, handle) = try harness.create("f\(number)")
            try harness.write(handle, 0, content(number))
            harness.volume.release(handle, harness.context)
            harness.volume.forget(node, lookups: 1)
        }
        try harness.reopen(storage: storage)
        storage.isSlow.store(true, ordering: .relaxed)
        for number in 0..<40 {
            let node = try harness.lookup("f\(number)").node
            let handle = try harness.open(node, O_RDONLY)
            // Waits for the prefetching, so that the speed of the disk does not matter.
            harness.volume.store.ahead.drain()
            #expect(try harness.read(handle, 0, 100) == content(number))
            harness.volume.release(handle, harness.context)
        }
        storage.isSlow.store(false, ordering: .relaxed)
        #expect(storage.took().count >= 30)
    }
}

/// The real backing store with an empty page cache, which notes what it is told to fetch.
private final class AheadStorage: ManualStorage, @unchecked Sendable {
    // Sendable: the added state is atomic or behind a mutex.
    let isInMemory = Atomic<Bool>(false)
    let isSlow = Atomic<Bool>(false)
    /// No file can be opened.
    let isForbidden = Atomic<Bool>(false)
    private struct State {
        var fetched: [UInt64] = []
        var inodes: [UInt64] = []
        var listed = 0
        var refused = 0
        var atNextInode: (@Sendable () -> Void)?
    }
    private let state = Mutex(State())

    override func waitsForDisk(_ descriptor: Int32) -> Bool { true }

    /// The inodes that were fetched since the last call.
    func took() -> [UInt64] {
        state.withLock { state in
            defer { state.fetched = [] }
            return state.fetched
        }
    }
    /// The inodes that were looked at since the last call.
    func tookInodes() -> [UInt64] {
        state.withLock { state in
            defer { state.inodes = [] }
            return state.inodes
        }
    }
    func atNextInode(_ body: @escaping @Sendable () -> Void) {
        state.withLock { $0.atNextInode = body }
    }
    func tookListed() -> Int {
        state.withLock { state in
            defer { state.listed = 0 }
            return state.listed
        }
    }

    var refused: Int { state.withLock { $0.refused } }

    override func readAhead(_ descriptor: Int32, _ bytes: Range<Int>) -> Bool {
        var status = Glibc.stat()
        _ = Glibc.fstat(descriptor, &status)
        let inode = UInt64(status.st_ino)
        state.withLock { $0.fetched.append(inode) }
        waitWhileHanging()
        _ = super.readAhead(descriptor, bytes)
        return isInMemory.load(ordering: .relaxed)
    }
    override func entries(
        _ directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        if offset == 0 { state.withLock { $0.listed += 1 } }
        return try super.entries(directory, from: offset)
    }
    override func fstatat(
        _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) -> stat {
        let status = try super.fstatat(directory, path)
        let body = state.withLock { state in
            state.inodes.append(UInt64(status.st_ino))
            defer { state.atNextInode = nil }
            return state.atNextInode
        }
        body?()
        return status
    }
    override func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        if flags & O_DIRECTORY == 0, isForbidden.load(ordering: .relaxed) {
            state.withLock { $0.refused += 1 }
            throw .permissionDenied
        }
        return try super.openat(directory, path, flags, mode: mode)
    }
    override func pread(_ d: Int32, _ b: UnsafeMutableRawPointer, _ c: Int, at o: Int)
        throws(Errno) -> Int
    {
        if isSlow.load(ordering: .relaxed) { advance(TreeReadAhead.coldNanoseconds) }
        return try super.pread(d, b, c, at: o)
    }
}
