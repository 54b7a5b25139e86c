import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardVolume

/// Long directories are read at several offsets at the same time (decision 0070).
@Suite struct ListingAheadTests {
    @Test("short directories are left alone")
    func short() {
        #expect(ListingAhead(bytes: ListingAhead.leastBytes - 1) == nil)
    }

    @Test(
        "each part once, in order, some before the listing comes to it",
        arguments: [512 << 10, 8 << 20, 100 << 20, 3_000_000_000])
    func parts(bytes: Int) throws {
        var listing = try #require(ListingAhead(bytes: bytes))
        let parts = UInt64(max(4, bytes / ListingAhead.partBytes))
        let step = UInt64(1) << 63 / parts
        var reached: UInt64 = 0
        for offset in stride(from: UInt64(0), to: 1 << 63, by: Int(step / 3)) {
            let fetched = listing.reach(offset)
            if offset == 0 {
                #expect(fetched.count == Int(min(ListingAhead.distance, parts - 1)))
                reached = try #require(fetched.first).lowerBound
                #expect(reached > offset)
            }
            for part in fetched {
                #expect(part.lowerBound == reached && part.upperBound > reached)
                reached = part.upperBound
            }
            #expect(reached >= min(offset + step, 1 << 63))
        }
        #expect(reached == 1 << 63, "to the end")
        #expect(listing.reach(UInt64(1) << 63 - 1).isEmpty)
        #expect(listing.reach(.max).isEmpty, "whatever a store says")
    }

    @Test("a listing that jumped leaves out what it has passed")
    func jump() throws {
        var listing = try #require(ListingAhead(bytes: 64 << 20))
        _ = listing.reach(0)
        let first = try #require(listing.reach(UInt64(1) << 62).first)
        #expect(first.lowerBound > UInt64(1) << 62)
    }

    @Test("parts are read from their beginning to their end, and no further than the store goes")
    func reading() throws {
        let storage = HashedStorage()
        let ahead = TreeReadAhead(storage, isUseful: true)
        ahead.fetch([100..<200, 200..<300, 900..<1000], ofListing: -1)
        ahead.drain()
        let offsets = storage.offsets.withLock { $0 }
        #expect(Set(offsets) == [100, 140, 180, 200, 240, 280, 900, 940])
        #expect(storage.descriptors.load(ordering: .relaxed) == 0, "all closed")
        ahead.stop()
        ahead.fetch([100..<200], ofListing: -1)
        ahead.drain()
        #expect(storage.offsets.withLock { $0.count } == offsets.count)
    }
}

/// A directory with a name at every fortieth offset up to 960.
private final class HashedStorage: PosixStorage, @unchecked Sendable {
    // Sendable: the added state is atomic or behind a mutex.
    let offsets = Mutex<[UInt64]>([])
    let descriptors = Atomic<Int>(0)

    override func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        descriptors.add(1, ordering: .relaxed)
        return 1000
    }
    override func close(_ descriptor: Int32) { descriptors.subtract(1, ordering: .relaxed) }
    override func entries(
        _ directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        offsets.withLock { $0.append(offset) }
        guard offset < 960 - 20 else { return [] }
        return [(DirectoryEntry(name: [65], inode: 1, type: 8), offset + 40)]
    }
    override func passEntries(_ directory: Int32, from offset: UInt64) throws(Errno) -> UInt64? {
        try entries(directory, from: offset).last?.next
    }
}
