import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardVolume

/// A damaged listing of the backing store costs the damaged name, and nothing else.
@Suite struct DamagedListingTests {
    @Test("a name that begins with a zero byte is reported once, and everything else is listed")
    func emptyName() throws {
        let storage = DamagedListingStorage()
        let harness = try VolumeHarness(storage: storage)
        for name in ["a", "b"] {
            harness.volume.release(try harness.create(name).handle, harness.context)
        }
        storage.hasEmptyName.store(true, ordering: .relaxed)
        for _ in 1...2 { #expect(try harness.names() == ["a", "b"]) }
        let foreign = harness.events.all.filter {
            if case .foreignFile = $0 { true } else { false }
        }
        #expect(foreign.count == 1)
    }

    @Test("a long name that can't be read: all others are listed, and then comes the error")
    func unreadableLongName() throws {
        let storage = DamagedListingStorage()
        let harness = try VolumeHarness(storage: storage)
        let long = String(repeating: "l", count: 250)
        for name in ["a", long, "b"] {
            harness.volume.release(try harness.create(name).handle, harness.context)
        }
        #expect(try harness.names() == ["a", "b", long])
        storage.hasBadLinks.store(true, ordering: .relaxed)
        let handle = try harness.volume.openDirectory(1, harness.context)
        defer { harness.volume.releaseDirectory(handle, harness.context) }
        var sink = ShortSink()
        // Continues as the kernel does, from the offset that came with the last name.
        while true {
            sink.room = 1
            let before = sink.names.count
            do throws(Errno) {
                try harness.volume.readDirectory(
                    handle, offset: sink.offset, lookup: false, into: &sink, harness.context)
                if sink.names.count == before {
                    Issue.record("the end, and no error")
                    break
                }
            } catch {
                #expect(error == .ioError)
                if sink.names.count == before { break }
            }
        }
        #expect(sink.names.sorted() == [".", "..", "a", "b"])
        #expect(!harness.volume.keepsListing(of: 1), "the kernel would keep it, and miss one")
        #expect(throws: Errno.ioError) { try harness.names() }
        storage.hasBadLinks.store(false, ordering: .relaxed)
        sink = ShortSink()
        try harness.volume.readDirectory(
            handle, offset: 0, lookup: false, into: &sink, harness.context)
        // The same handle, read again from the beginning.
        #expect(sink.names.sorted() == [".", "..", "a", "b", long])
    }
}

private struct ShortSink: DirectorySink {
    var names: [String] = []
    var offset: UInt64 = 0
    var room = Int.max
    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool {
        guard room > 0 else { return false }
        room -= 1
        names.append(String(decoding: name, as: UTF8.self))
        offset = nextOffset
        return true
    }
}

private final class DamagedListingStorage: PosixStorage, @unchecked Sendable {
    // Sendable: the added state is atomic.
    let hasEmptyName = Atomic(false)
    let hasBadLinks = Atomic(false)

    override func entries(
        _ directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        var entries = try super.entries(directory, from: offset)
        if hasEmptyName.load(ordering: .relaxed), let first = entries.first {
            entries.insert(
                (DirectoryEntry(name: [], inode: 7, type: 8), first.next), at: 1)
        }
        return entries
    }
    override func readlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawPointer,
        _ count: Int
    ) throws(Errno) -> Int {
        if hasBadLinks.load(ordering: .relaxed) { throw .ioError }
        return try super.readlinkat(directory, path, buffer, count)
    }
}
