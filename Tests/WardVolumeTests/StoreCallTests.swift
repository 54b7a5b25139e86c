import Glibc
import Testing
import WardSystem

@testable import WardVolume

/// The calls to the backing store that each common operation makes. A higher number costs every
/// program time; a lower one is entered here.
@Suite struct StoreCallTests {
    private let storage = CountingStorage()
    private let harness: VolumeHarness
    private let page = [UInt8](repeating: 7, count: 4096)

    init() throws {
        harness = try VolumeHarness(storage: storage)
        // The calls that happen once for each directory are done.
        let (_, handle) = try harness.create("first")
        harness.volume.release(handle, harness.context)
    }

    private func expect(
        _ what: Comment, _ wanted: [String: Int], _ body: () throws(Errno) -> Void,
        _ location: SourceLocation = #_sourceLocation
    ) throws {
        let calls = try storage.calls(of: body)
        #expect(calls == wanted, what, sourceLocation: location)
    }

    private func release(_ handle: HandleID) { harness.volume.release(handle, harness.context) }

    private func makeFile(_ name: String, bytes: Int = 4096) throws {
        let (node, handle) = try harness.create(name)
        try harness.write(handle, 0, [UInt8](repeating: 7, count: bytes))
        release(handle)
        harness.volume.forget(node, lookups: 1)
    }

    @Test("a new file of one page: created, written, closed")
    func creation() throws {
        var file: (node: NodeID, handle: HandleID) = (0, 0)
        try expect("the look-up before it", ["fstatat": 1]) { () throws(Errno) in
            do throws(Errno) { _ = try harness.lookup("new") } catch .noSuchFileOrDirectory {}
        }
        try expect("create", ["openat": 1, "fstat": 1]) { () throws(Errno) in
            file = try harness.create("new")
        }
        // The kernel reads these before the first write, and at chmod.
        for name in ["security.capability", "system.posix_acl_access"] {
            try expect("\(name) of a new file", [:]) { () throws(Errno) in
                do throws(Errno) {
                    _ = try harness.withName(name) { bytes throws(Errno) in
                        try harness.volume.extendedAttribute(of: file.node, bytes, harness.context)
                    }
                } catch .noData {}
            }
        }
        try expect("write", ["pwrite": 1]) { () throws(Errno) in
            try harness.write(file.handle, 0, page)
        }
        try expect("close", ["ftruncate": 1, "close": 1]) { release(file.handle) }
    }

    @Test("stat, by name and by node")
    func status() throws {
        try makeFile("f")
        var node: NodeID = 0
        try expect("look-up", ["fstatat": 1]) { () throws(Errno) in
            node = try harness.lookup("f").node
        }
        try expect("getattr", ["fstatat": 1]) { () throws(Errno) in _ = try harness.size(node) }
    }

    @Test("open, read, close", arguments: [(4096, 1), (1000, 1), (12_000, 1), (1 << 20, 2)])
    func reading(bytes: Int, readsAtOpen: Int) throws {
        try makeFile("f", bytes: bytes)
        let node = try harness.lookup("f").node
        var handle: HandleID = 0
        try expect("open", ["openat": 1, "fstat": 1, "pread": readsAtOpen]) {
            () throws(Errno) in handle = try harness.open(node, O_RDONLY)
        }
        try expect("read", ["pread": 1]) { () throws(Errno) in
            _ = try harness.read(handle, 0, bytes)
        }
        try expect("close", ["close": 1]) { release(handle) }
    }

    @Test("1 MiB in one write; 4 KiB written over, synced")
    func writing() throws {
        let (_, handle) = try harness.create("f")
        let large = [UInt8](repeating: 1, count: 1 << 20)
        try expect("1 MiB", ["pwrite": 1]) { () throws(Errno) in try harness.write(handle, 0, large)
        }
        try expect("the next", ["pread": 1, "pwrite": 1]) { () throws(Errno) in
            try harness.write(handle, 1 << 20, large)
        }
        try expect("the first fsync, with its name", ["fsync": 2]) { () throws(Errno) in
            try harness.volume.fsync(handle, dataOnly: false, harness.context)
        }
        try expect("4 KiB inside", ["pread": 1, "pwrite": 1]) { () throws(Errno) in
            try harness.write(handle, 100_000, page)
        }
        try expect("fsync", ["fsync": 1]) { () throws(Errno) in
            try harness.volume.fsync(handle, dataOnly: false, harness.context)
        }
        // The pages at both ends are read with one wait for the disk.
        try expect("16 KiB inside", ["pread": 1, "pwrite": 1]) { () throws(Errno) in
            try harness.write(handle, 98_304, Array(large[..<16_384]))
        }
        try expect("1 MiB inside", ["pread": 2, "pwrite": 1]) { () throws(Errno) in
            try harness.write(handle, 100_000, large)
        }
        release(handle)
    }

    @Test(
        "a file emptied, which keeps its header, is synced once when it grows, not whenever it does"
    )
    func keySyncedOnce() throws {
        let (node, first) = try harness.create("f")
        try harness.withName("user.a") { name throws(Errno) in
            try harness.volume.setExtendedAttribute(
                of: node, name, value: UnsafeRawBufferPointer(start: nil, count: 0), flags: 0,
                dropSetGroupID: false, caller: harness.caller, harness.context)
        }
        try harness.write(first, 0, [1])
        try harness.setSize(node, first, 0)
        release(first)
        for (size, syncs) in [(5000, 1), (10_000, nil)] {
            let handle = try harness.open(node)
            let calls = try storage.calls { () throws(Errno) in
                try harness.write(handle, size, page)
            }
            #expect(calls["fdatasync"] == syncs)
            release(handle)
        }
    }

    @Test("unlink and rename")
    func names() throws {
        try makeFile("f")
        try expect("rename", ["fstatat": 2, "renameat": 1]) { () throws(Errno) in
            try harness.withName("f") { old throws(Errno) in
                try harness.withName("g") { new throws(Errno) in
                    try harness.volume.rename(
                        1, old, 1, new, flags: 0, caller: harness.caller, harness.context)
                }
            }
        }
        try expect("unlink", ["fstatat": 1, "unlinkat": 1]) { () throws(Errno) in
            try harness.withName("g") { name throws(Errno) in
                try harness.volume.unlink(1, name, caller: harness.caller, harness.context)
            }
        }
    }

    @Test("a listing of 1,000 names, without and with attributes")
    func listing() throws {
        for number in 0..<1000 {
            let (node, handle) = try harness.create("name-\(number)")
            release(handle)
            harness.volume.forget(node, lookups: 1)
        }
        var calls = try storage.calls { () throws(Errno) in
            #expect(try harness.names().count == 1001)
        }
        // Each call gives some names; the last call says that there are no more.
        #expect(calls.removeValue(forKey: "entries") ?? 0 <= 5)
        #expect(calls == ["openat": 1, "close": 1])
        var sink = NameSink()
        calls = try storage.calls { () throws(Errno) in
            let handle = try harness.volume.openDirectory(1, harness.context)
            try harness.volume.readDirectory(
                handle, offset: 0, lookup: true, into: &sink, harness.context)
            harness.volume.releaseDirectory(handle, harness.context)
        }
        #expect(calls.removeValue(forKey: "entries") ?? 0 <= 5)
        #expect(calls == ["openat": 1, "fstatat": 1001, "fstat": 1, "close": 1])
    }

    @Test("the first reply for a long listing looks up few names, and the next as many as fit")
    func longListing() throws {
        let count = 5000
        for number in 0..<count {
            let (node, handle) = try harness.create("name-\(number)")
            release(handle)
            harness.volume.forget(node, lookups: 1)
        }
        let handle = try harness.volume.openDirectory(1, harness.context)
        defer { harness.volume.releaseDirectory(handle, harness.context) }
        var first = OffsetSink()
        var calls = try storage.calls { () throws(Errno) in
            try harness.volume.readDirectory(
                handle, offset: 0, lookup: true, into: &first, harness.context)
        }
        // On stores whose directories need no room of their own, listings never count as long.
        var store = stat()
        #expect(stat(harness.directory, &store) == 0)
        let isLong = store.st_size >= 128 << 10
        #expect(calls["fstatat"] == (isLong ? 4 : count + 1))
        #expect(first.lookedUp == calls["fstatat"])
        guard isLong else { return }
        var rest = OffsetSink()
        calls = try storage.calls { () throws(Errno) in
            try harness.volume.readDirectory(
                handle, offset: first.last, lookup: true, into: &rest, harness.context)
        }
        #expect(calls["fstatat"] == count + 1 - 4)
        let names = Set(first.names + rest.names).subtracting([".", ".."])
        #expect(names.count == count + 1 && first.names.count + rest.names.count == count + 3)
        // Without look-ups the first reply has as many names as fit.
        var plain = OffsetSink()
        try harness.volume.readDirectory(
            handle, offset: 0, lookup: false, into: &plain, harness.context)
        #expect(plain.names.count == count + 3 && plain.lookedUp == 0)
    }

    @Test("a listing goes on where it stopped, for another handle, too, whatever was removed")
    func offsets() throws {
        try #require(harness.volume.keepsListings, "on ext4, XFS or Btrfs")
        for number in 0..<600 { try makeFile("name-\(number)", bytes: 1) }
        let all = Set(try harness.names())
        var seen: [String] = []
        var offset: UInt64 = 0
        while true {
            // A new handle for every ten names, as if the kernel had cached the rest and dropped
            // it.
            let handle = try harness.volume.openDirectory(1, harness.context)
            defer { harness.volume.releaseDirectory(handle, harness.context) }
            var sink = LimitedSink(limit: 10)
            try harness.volume.readDirectory(
                handle, offset: offset, lookup: false, into: &sink, harness.context)
            guard let last = sink.last else { break }
            offset = last
            for name in sink.names where name != "." && name != ".." {
                seen.append(name)
                try harness.withName(name) { bytes throws(Errno) in
                    try harness.volume.unlink(1, bytes, caller: harness.caller, harness.context)
                }
            }
        }
        #expect(seen.count == all.count)
        #expect(Set(seen) == all)
        #expect(try harness.names().isEmpty)
    }
}

/// Takes all names, and keeps the last offset.
private struct OffsetSink: DirectorySink {
    var names: [String] = []
    var lookedUp = 0
    var last: UInt64 = 0

    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool {
        names.append(String(decoding: name, as: UTF8.self))
        if entry != nil { lookedUp += 1 }
        last = nextOffset
        return true
    }
}

/// Takes up to `limit` names.
private struct LimitedSink: DirectorySink {
    let limit: Int
    var names: [String] = []
    var last: UInt64?

    init(limit: Int) { self.limit = limit }

    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool {
        guard names.count < limit else { return false }
        names.append(String(decoding: name, as: UTF8.self))
        last = nextOffset
        return true
    }
}
