import CWardLinux
import Foundation
import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// Every call of the backing store fails in turn, calls that change nothing included. The program
/// gets the store's error, the state is the old or the new one, no tampering is reported, and later
/// calls work.
@Suite struct FaultTests {
    static let errors: [Errno] = [
        .ioError, .noSpace, Errno(rawValue: EDQUOT), .readOnlyFileSystem, .staleNFSFileHandle,
    ]
    private static let long = String(repeating: "n", count: 220)
    private static let content = (0..<11_000).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    private static let more = [UInt8](repeating: 0xAB, count: 9000)

    /// A directory for each try, and the volume it is in.
    fileprivate struct Place {
        let harness: VolumeHarness
        let directory: NodeID

        func path(_ name: String) throws -> NodeID {
            try harness.lookup(name, in: directory).node
        }

        func withFile<R>(_ name: String = "file", _ body: (NodeID, HandleID) throws -> R) throws
            -> R
        {
            let node = try path(name)
            defer { harness.volume.forget(node, lookups: 1) }
            let handle = try harness.open(node)
            defer { harness.volume.release(handle, harness.context) }
            return try body(node, handle)
        }

        func bytes<R>(_ name: String, _ body: (UnsafeRawBufferPointer) throws(Errno) -> R) throws
            -> R
        {
            try harness.withName(name) { bytes throws(Errno) in try body(bytes) }
        }
    }

    private typealias Action = (name: String, body: @Sendable (Place) throws -> Void)

    private static let actions: [Action] = [
        (
            "read",
            { place in
                let got = try place.withFile { _, handle in
                    try place.harness.read(handle, 0, 1 << 20)
                }
                #expect(got == content)
            }
        ),
        (
            "list",
            { place in
                let names = try place.harness.names(in: place.directory)
                #expect(names == ["db", "empty", "file", "link", long, "sub"])
            }
        ),
        (
            "stat",
            { place in
                let node = try place.path("file")
                let size = try place.harness.size(node)
                #expect(size == content.count)
            }
        ),
        (
            "stat of a long name",
            { place in
                let node = try place.path(long)
                let size = try place.harness.size(node)
                #expect(size == 3)
            }
        ),
        (
            "read a link",
            { place in
                let node = try place.path("link")
                let target = try place.harness.volume.readLink(node, place.harness.context)
                #expect(target == Array("target".utf8))
            }
        ),
        (
            "get attribute",
            { place in
                let node = try place.path("file")
                let value = try place.bytes("user.note") { name throws(Errno) in
                    try place.harness.volume.extendedAttribute(
                        of: node, name, place.harness.context)
                }
                #expect(value == Array("value".utf8))
            }
        ),
        (
            "list attributes",
            { place in
                let node = try place.path("file")
                let names = try place.harness.volume.extendedAttributeNames(
                    of: node, place.harness.context)
                #expect(String(decoding: names, as: UTF8.self) == "user.ward.class\0user.note\0")
            }
        ),
        (
            "class",
            { place in
                let found = try place.harness.classOf(try place.path("file"))
                #expect(found == "NSFileProtectionNone")
            }
        ),
        (
            "append",
            { place in
                try place.withFile { _, handle in
                    try place.harness.write(handle, content.count, more)
                }
            }
        ),
        (
            "shorten",
            { place in
                try place.withFile { node, handle in try place.harness.setSize(node, handle, 4000) }
            }
        ),
        (
            "empty",
            { place in
                try place.withFile { node, handle in try place.harness.setSize(node, handle, 0) }
            }
        ),
        (
            "lengthen",
            { place in
                try place.withFile { node, handle in try place.harness.setSize(node, handle, 40_000)
                }
            }
        ),
        (
            "first data",
            { place in
                try place.withFile("empty") { _, handle in
                    try place.harness.write(handle, 0, [1, 2, 3])
                }
            }
        ),
        (
            "create",
            { place in
                let (_, handle) = try place.harness.create("new", in: place.directory)
                place.harness.volume.release(handle, place.harness.context)
            }
        ),
        (
            "create a long name",
            { place in
                let (_, handle) = try place.harness.create(
                    String(repeating: "m", count: 230), in: place.directory)
                place.harness.volume.release(handle, place.harness.context)
            }
        ),
        (
            "punch a hole",
            { place in
                try place.withFile { _, handle in
                    try place.harness.volume.allocate(
                        handle, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        offsetBytes: 4000, lengthBytes: 6000, caller: place.harness.caller,
                        place.harness.context)
                }
            }
        ),
        ("rename", { place in try place.rename("file", "moved") }),
        ("exchange", { place in try place.rename("file", long, flags: 2) }),
        ("rename a long name", { place in try place.rename(long, "moved") }),
        ("rename over a long name", { place in try place.rename("file", long) }),
        (
            "unlink a long name",
            { place in
                try place.bytes(long) { name throws(Errno) in
                    try place.harness.volume.unlink(
                        place.directory, name, caller: place.harness.caller, place.harness.context)
                }
            }
        ),
        (
            "unlink",
            { place in
                try place.bytes("file") { name throws(Errno) in
                    try place.harness.volume.unlink(
                        place.directory, name, caller: place.harness.caller, place.harness.context)
                }
            }
        ),
        (
            "rmdir",
            { place in
                try place.bytes("sub") { name throws(Errno) in
                    try place.harness.volume.removeDirectory(
                        place.directory, name, place.harness.context)
                }
            }
        ),
        ("chmod", { place in try place.change("file") { $0.mode = S_IFREG | 0o400 } }),
        ("chown", { place in try place.change("file") { $0.gid = getegid() } }),
        (
            "link",
            { place in
                let node = try place.path("file")
                _ = try place.bytes("second") { name throws(Errno) in
                    try place.harness.volume.link(
                        node, place.directory, name, caller: place.harness.caller,
                        place.harness.context)
                }
            }
        ),
        (
            "symlink",
            { place in
                _ = try place.bytes("new link") { name throws(Errno) in
                    try place.harness.withName("target") { target throws(Errno) in
                        try place.harness.volume.makeSymbolicLink(
                            place.directory, name, target: target, caller: place.harness.caller,
                            place.harness.context)
                    }
                }
            }
        ),
        (
            "symlink with a target that is kept elsewhere",
            { place in
                _ = try place.bytes("new link") { name throws(Errno) in
                    try place.harness.withName(String(repeating: "t", count: 4000)) {
                        target throws(Errno) in
                        try place.harness.volume.makeSymbolicLink(
                            place.directory, name, target: target, caller: place.harness.caller,
                            place.harness.context)
                    }
                }
            }
        ),
        (
            "create the side file of a database that is open",
            { place in
                try place.withFile("db") { _, _ in
                    let (_, handle) = try place.harness.create("db-wal", in: place.directory)
                    place.harness.volume.release(handle, place.harness.context)
                }
            }
        ),
        (
            "mkdir",
            { place in
                _ = try place.bytes("new directory") { name throws(Errno) in
                    try place.harness.volume.makeDirectory(
                        place.directory, name, mode: 0o755, umask: 0, caller: place.harness.caller,
                        place.harness.context)
                }
            }
        ),
        (
            "set attribute",
            { place in
                let node = try place.path("file")
                try place.bytes("user.other") { name throws(Errno) in
                    try place.harness.withName("value") { value throws(Errno) in
                        try place.harness.volume.setExtendedAttribute(
                            of: node, name, value: value, flags: 0, dropSetGroupID: false,
                            caller: place.harness.caller, place.harness.context)
                    }
                }
            }
        ),
        (
            "remove attribute",
            { place in
                let node = try place.path("file")
                try place.bytes("user.note") { name throws(Errno) in
                    try place.harness.volume.removeExtendedAttribute(
                        of: node, name, caller: place.harness.caller, place.harness.context)
                }
            }
        ),
        (
            "class of a file",
            { place in
                try place.harness.setClass(try place.path("file"), "A")
            }
        ),
        ("class of the directory", { place in try place.harness.setClass(place.directory, "A") }),
        (
            "fsync",
            { place in
                try place.withFile { _, handle in
                    try place.harness.volume.fsync(handle, dataOnly: false, place.harness.context)
                }
            }
        ),
        (
            "fsync of the directory",
            { place in
                let volume = place.harness.volume
                let handle = try volume.openDirectory(place.directory, place.harness.context)
                defer { volume.releaseDirectory(handle, place.harness.context) }
                try volume.fsyncDirectory(handle, dataOnly: false, place.harness.context)
            }
        ),
    ]

    /// Type, class, content and attribute names by name. `isLenient`: tells of the content of
    /// `file` only whether an interrupted change may leave it.
    private func snapshot(_ place: Place, isLenient: Bool = false) throws -> [String: String] {
        var all: [String: String] = [".": try place.harness.classOf(place.directory)]
        for name in try place.harness.names(in: place.directory) {
            let entry = try place.harness.lookup(name, in: place.directory)
            defer { place.harness.volume.forget(entry.node, lookups: 1) }
            var text = "\(entry.attributes.mode) \(entry.attributes.linkCount) "
            if mode_t(entry.attributes.mode) & S_IFMT == S_IFREG {
                text += try place.harness.classOf(entry.node)
                let handle = try place.harness.open(entry.node)
                defer { place.harness.volume.release(handle, place.harness.context) }
                let bytes = try place.harness.read(handle, 0, 1 << 20)
                text +=
                    name == "file" && isLenient ? judge(bytes) : Data(bytes).base64EncodedString()
                let names = try place.harness.volume.extendedAttributeNames(
                    of: entry.node, place.harness.context)
                text += String(decoding: names, as: UTF8.self)
            }
            all[name] = text
        }
        return all
    }

    /// Each byte must be the old one or one that some action writes. Behind the point where an
    /// action cuts the file, zeros are good up to the old end.
    private func judge(_ bytes: [UInt8]) -> String {
        let isPossible = bytes.enumerated().allSatisfy { index, byte in
            if index < 4000 { return byte == Self.content[index] }
            return byte == 0 || byte == (index < Self.content.count ? Self.content[index] : 0xAB)
        }
        return isPossible ? " possible " : " impossible "
    }

    private func make(_ name: String, _ harness: VolumeHarness) throws -> Place {
        let entry = try harness.withName(name) { name throws(Errno) in
            try harness.volume.makeDirectory(
                1, name, mode: 0o755, umask: 0, caller: harness.caller, harness.context)
        }
        let place = Place(harness: harness, directory: entry.node)
        let database = Array("SQLite format 3\0".utf8) + [UInt8](repeating: 0, count: 84)
        for (name, bytes) in [
            ("file", Self.content), ("empty", []), (Self.long, [1, 2, 3]), ("db", database),
        ] {
            let (node, handle) = try harness.create(name, in: entry.node)
            if name == "db" { try harness.setClass(node, "A") }
            if !bytes.isEmpty { try harness.write(handle, 0, bytes) }
            harness.volume.release(handle, harness.context)
            if name == "file" {
                try harness.withName("user.note") { name throws(Errno) in
                    try harness.withName("value") { value throws(Errno) in
                        try harness.volume.setExtendedAttribute(
                            of: node, name, value: value, flags: 0, dropSetGroupID: false,
                            caller: harness.caller, harness.context)
                    }
                }
            }
            harness.volume.forget(node, lookups: 1)
        }
        let link = try harness.withName("link") { name throws(Errno) in
            try harness.withName("target") { target throws(Errno) in
                try harness.volume.makeSymbolicLink(
                    entry.node, name, target: target, caller: harness.caller, harness.context)
            }
        }
        harness.volume.forget(link.node, lookups: 1)
        harness.volume.forget(try harness.makeDirectory("sub", in: entry.node), lookups: 1)
        return place
    }

    @Test(
        "every call of every operation fails, once or with all that follow it",
        arguments: getenv("WARD_TAMPER_ALL") == nil ? [0] : Array(errors.indices), [false, true])
    func everyCall(shift: Int, andLater: Bool) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        var last: [String: [[String: String]]] = [:]
        var failures = 0
        for (number, action) in Self.actions.enumerated() {
            let twin = try make("\(number)", harness)
            let before = try snapshot(twin, isLenient: andLater)
            try action.body(twin)
            let after = try snapshot(twin, isLenient: andLater)
            for n in 0..<100 {
                let name = "\(number)-\(n)"
                let place = try make(name, harness)
                // Each operation meets each error; with WARD_TAMPER_ALL=1 each call meets all of
                // them.
                let error = Self.errors[(number + n + shift) % Self.errors.count]
                let what = "\(action.name), call \(n), \(error)"
                storage.failCall(n, error, andLater: andLater)
                var wasReached = false
                do {
                    try action.body(place)
                    wasReached = storage.hasFailed
                    storage.stop()
                } catch let thrown as Errno {
                    wasReached = true
                    storage.stop()
                    #expect(thrown == error, "\(what)")
                    failures += 1
                }
                var now: [String: String] = [:]
                do {
                    now = try snapshot(place, isLenient: andLater)
                } catch {
                    Issue.record("\(what): \(error) \(harness.events.all.suffix(3))")
                    continue
                }
                #expect(now == before || now == after, "\(what): \(now)")
                last[name] = [before, after]
                harness.volume.forget(place.directory, lookups: 1)
                if !wasReached { break }
            }
        }
        #expect(failures > 100)
        #expect(harness.events.integrityFailures == [])
        #expect(!harness.events.all.contains { if case .foreignFile = $0 { true } else { false } })
        try harness.reopen()
        for (name, allowed) in last {
            let entry = try harness.lookup(name)
            let now = try snapshot(
                Place(harness: harness, directory: entry.node), isLenient: andLater)
            #expect(allowed.contains(now), "\(name), mounted again")
            harness.volume.forget(entry.node, lookups: 1)
        }
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a store that is gone for a while", arguments: errors + [.noSuchFileOrDirectory])
    func vanished(error: Errno) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let place = try make("directory", harness)
        let before = try snapshot(place)
        let node = try place.path("file")
        let handle = try harness.open(node)
        storage.vanish(error)
        #expect(throws: error) { try harness.read(handle, 0, 100) }
        #expect(throws: error) { try harness.write(handle, 0, [9]) }
        #expect(throws: error) { try harness.size(node) }
        #expect(throws: error) {
            try harness.volume.fsync(handle, dataOnly: false, harness.context)
        }
        #expect(throws: error) { try harness.volume.durablePoint() }
        for action in Self.actions {
            #expect(throws: error, "\(action.name)") { try action.body(place) }
        }
        harness.volume.release(handle, harness.context)
        storage.vanish(nil)
        #expect(try snapshot(place) == before)
        for action in Self.actions.prefix(9) { try action.body(place) }
        #expect(harness.events.integrityFailures == [])
        let after = try snapshot(place)
        try harness.reopen()
        let again = Place(harness: harness, directory: try harness.lookup("directory").node)
        #expect(try snapshot(again) == after)
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a sync that fails is told once to each handle, whichever of them synced")
    func failedSync() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let (node, first) = try harness.create("file")
        try harness.write(first, 0, [1, 2, 3])
        let second = try harness.open(node)
        let third = try harness.open(node)
        func sync(_ handle: HandleID) throws {
            try harness.volume.fsync(handle, dataOnly: true, harness.context)
        }
        storage.failAfter(0, .noSpace)
        #expect(throws: Errno.noSpace) { try sync(first) }
        storage.stop()
        try sync(first)
        #expect(throws: Errno.noSpace) { try sync(second) }
        try sync(second)
        // close(2) reports the failure to a handle that did not sync again.
        #expect(throws: Errno.noSpace) { try harness.volume.flush(third, harness.context) }
        try harness.volume.flush(third, harness.context)
        let later = try harness.open(node)
        try sync(later)
        try harness.volume.flush(later, harness.context)
        for handle in [first, second, third, later] {
            harness.volume.release(handle, harness.context)
        }
    }

    @Test("while the store hangs in one file, others are served")
    func hangs() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let place = try make("directory", harness)
        let (_, handle) = try harness.create("stuck")
        let volume = harness.volume
        let caller = harness.caller
        let isWriting = DispatchSemaphore(value: 0)
        let isWritten = DispatchSemaphore(value: 0)
        storage.hang.lock()
        storage.onHang { isWriting.signal() }
        Thread.detachNewThread {
            let context = WorkerContext(volume: volume)
            [UInt8](repeating: 7, count: 100).withUnsafeBytes {
                try? volume.write(handle, offsetBytes: 0, $0, flags: [], caller: caller, context)
            }
            context.finishRequest()
            isWritten.signal()
        }
        #expect(isWriting.wait(timeout: .now() + 10) == .success)
        for action in Self.actions.prefix(8) { try action.body(place) }
        #expect(isWritten.wait(timeout: .now()) == .timedOut)
        storage.hang.unlock()
        #expect(isWritten.wait(timeout: .now() + 10) == .success)
        #expect(try harness.read(handle, 0, 200) == [UInt8](repeating: 7, count: 100))
        harness.volume.release(handle, harness.context)
    }
}

extension FaultTests.Place {
    fileprivate func change(_ name: String, _ set: (inout AttributeChange) -> Void) throws {
        var change = AttributeChange()
        set(&change)
        let node = try path(name)
        defer { harness.volume.forget(node, lookups: 1) }
        _ = try harness.volume.setAttributes(
            of: node, handle: nil, change, caller: harness.caller, harness.context)
    }

    fileprivate func rename(_ old: String, _ new: String, flags: UInt32 = 0) throws {
        try bytes(old) { old throws(Errno) in
            try harness.withName(new) { new throws(Errno) in
                try harness.volume.rename(
                    directory, old, directory, new, flags: flags, caller: harness.caller,
                    harness.context)
            }
        }
    }
}
