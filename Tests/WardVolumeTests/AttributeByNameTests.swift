import Glibc
import Synchronization
import Testing
import WardSystem

@testable import WardVolume

/// Extended attributes of a file that is not open are read by its name: `ls -l` reads those of each
/// file.
@Suite struct AttributeByNameTests {
    private static let accessACL = "system.posix_acl_access"

    private func value(
        _ harness: VolumeHarness, _ node: NodeID, _ name: String
    ) throws(Errno) -> [UInt8]? {
        do throws(Errno) {
            return try harness.withName(name) { bytes throws(Errno) in
                try harness.volume.extendedAttribute(of: node, bytes, harness.context)
            }
        } catch .noData {
            return nil
        }
    }

    private func set(
        _ harness: VolumeHarness, _ node: NodeID, _ name: String, to value: String
    ) throws(Errno) {
        try harness.withName(name) { name throws(Errno) in
            try harness.withName(value) { value throws(Errno) in
                try harness.volume.setExtendedAttribute(
                    of: node, name, value: value, flags: 0, dropSetGroupID: false,
                    caller: harness.caller, harness.context)
            }
        }
    }

    private func remove(
        _ harness: VolumeHarness, _ node: NodeID, _ name: String
    ) throws(Errno) {
        try harness.withName(name) { bytes throws(Errno) in
            try harness.volume.removeExtendedAttribute(
                of: node, bytes, caller: harness.caller, harness.context)
        }
    }

    private func setMode(_ harness: VolumeHarness, _ node: NodeID, _ mode: UInt32) throws(Errno) {
        var change = AttributeChange()
        change.mode = mode
        _ = try harness.volume.setAttributes(
            of: node, handle: nil, change, caller: harness.caller, harness.context)
    }

    private func makeFile(
        _ harness: VolumeHarness, _ name: String, attribute: String
    ) throws -> NodeID {
        let (node, handle) = try harness.create(name)
        try harness.write(handle, 0, [1])
        try set(harness, node, "user.a", to: attribute)
        harness.volume.release(handle, harness.context)
        harness.volume.forget(node, lookups: 1)
        return try harness.lookup(name).node
    }

    @Test("two calls of the store for each, one where the file is open")
    func calls() throws {
        let storage = CountingStorage()
        let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "1")
        var calls = try storage.calls { () throws(Errno) in
            #expect(try value(harness, node, Self.accessACL) == nil)
        }
        #expect(calls == ["getxattrat": 1, "fstatat": 1])
        calls = try storage.calls { () throws(Errno) in
            #expect(
                try harness.volume.extendedAttributeNames(of: node, harness.context)
                    .split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
                    .contains("user.a"))
        }
        #expect(calls["listxattrat"] == 1 && calls["getxattrat"] == 1)
        let handle = try harness.open(node, O_RDONLY)
        calls = try storage.calls { () throws(Errno) in
            #expect(try value(harness, node, Self.accessACL) == nil)
        }
        #expect(calls == ["getxattr": 1])
        harness.volume.release(handle, harness.context)
    }

    @Test("a file that its owner may not write: its mode is looked at beside it")
    func readOnly() throws {
        let storage = CountingStorage()
        let harness = try VolumeHarness(storage: storage)
        for mode in [0o444, 0o200, 0o644] {
            let node = try makeFile(harness, "f\(mode)", attribute: "1")
            try setMode(harness, node, UInt32(mode))
            let calls = try storage.calls { () throws(Errno) in
                let found = try harness.volume.attributes(
                    of: node, handle: nil, caller: harness.caller, harness.context)
                #expect(found.mode & 0o7777 == UInt32(mode))
            }
            #expect(calls == (mode == 0o644 ? ["fstatat": 1] : ["fstatat": 2, "getxattrat": 1]))
        }
    }

    @Test("a name that goes to another file meanwhile does not answer for it", arguments: [1, 2])
    func moved(renames: Int) throws {
        let storage = FailingStorage()
        defer { storage.onAttributeByName(nil) }
        // Used by one thread at a time.
        nonisolated(unsafe) let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "of f")
        _ = try makeFile(harness, "g", attribute: "of g")
        let asked = Atomic(0)
        storage.onAttributeByName {
            guard asked.add(1, ordering: .relaxed).oldValue == 0 else { return }
            try! harness.rename("f", 1, "h", 1)
            if renames == 2 { try! harness.rename("g", 1, "f", 1) }
        }
        #expect(try value(harness, node, "user.a") == Array("of f".utf8))
        #expect(asked.load(ordering: .relaxed) >= 1)
        storage.onAttributeByName(nil)
        // Moved away and back, so that the name is the same before and after.
        if renames == 2 { try harness.rename("f", 1, "g", 1) }
        storage.onAttributeByName {
            try! harness.rename("h", 1, "i", 1)
            try! harness.rename("g", 1, "h", 1)
            try! harness.rename("h", 1, "g", 1)
            try! harness.rename("i", 1, "h", 1)
        }
        #expect(try value(harness, node, "user.a") == Array("of f".utf8))
    }

    @Test("a store that says once that a file is gone is asked again")
    func passing() throws {
        let storage = FailingStorage()
        defer {
            storage.onAttributeByName(nil)
            storage.onOpenPlace(nil)
        }
        let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "of f")
        let link = try #require(harness.volume.node(node).link)
        let place =
            harness.directory + "/"
            + link.name.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        storage.onAttributeByName { _ = rename(place, place + "-away") }
        // Another program brings the file back before it is looked for a third time. Ward looks for
        // some milliseconds, which may be too short for a program on a busy machine.
        let looked = Atomic(0)
        storage.onOpenPlace {
            guard looked.add(1, ordering: .relaxed).newValue == 3 else { return }
            #expect(rename(place + "-away", place) == 0)
        }
        #expect(try value(harness, node, "user.a") == Array("of f".utf8))
        #expect(looked.load(ordering: .relaxed) == 3)
    }

    @Test("what somebody put in the store by that name, behind ward's back, does not answer either")
    func replacedBehind() throws {
        let storage = FailingStorage()
        defer { storage.onAttributeByName(nil) }
        let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "of f")
        let link = try #require(harness.volume.node(node).link)
        let stored = link.name.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
        let place = harness.directory + "/" + stored
        #expect(rename(place, place + "-away") == 0 && mkdir(place, 0o700) == 0)
        #expect(throws: Errno.self) { try value(harness, node, "user.a") }
        #expect(rmdir(place) == 0 && rename(place + "-away", place) == 0)
        #expect(try value(harness, node, "user.a") == Array("of f".utf8))
    }

    @Test("an attribute that is removed while the list is made is not in it, without an error")
    func removedMeanwhile() throws {
        let storage = FailingStorage()
        defer { storage.onAttributeByName(nil) }
        // Used by one thread at a time.
        nonisolated(unsafe) let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "of f")
        let asked = Atomic(0)
        storage.onAttributeByName {
            guard asked.add(1, ordering: .relaxed).oldValue == 0 else { return }
            try! remove(harness, node, "user.a")
        }
        let names = try harness.volume.extendedAttributeNames(of: node, harness.context)
        #expect(names == Volume.className + [0])
        #expect(asked.load(ordering: .relaxed) == 1)
    }

    @Test("a file that gets another ID while its attribute is read is not taken for a damaged one")
    func newIDMeanwhile() throws {
        let storage = FailingStorage()
        defer { storage.onAttributeByName(nil) }
        // Used by one thread at a time.
        nonisolated(unsafe) let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "of f")
        let asked = Atomic(0)
        storage.onAttributeByName {
            guard asked.add(1, ordering: .relaxed).oldValue == 0 else { return }
            try! remove(harness, node, "user.a")
            try! harness.setSize(node, nil, 0)
            try! set(harness, node, "user.a", to: "later")
        }
        #expect(try value(harness, node, "user.a") == Array("later".utf8))
        #expect(asked.load(ordering: .relaxed) > 1)
        #expect(harness.events.integrityFailures.isEmpty)
    }

    @Test("a mode that is changed while it is looked at is the one of before or the one of after")
    func modeMeanwhile() throws {
        let storage = FailingStorage()
        defer { storage.onAttributeByName(nil) }
        // Used by one thread at a time.
        nonisolated(unsafe) let harness = try VolumeHarness(storage: storage)
        let node = try makeFile(harness, "f", attribute: "of f")
        for later: UInt32 in [0o644, 0o444, 0o111, 0o200] {
            try setMode(harness, node, 0o200)
            let asked = Atomic(0)
            storage.onAttributeByName {
                guard asked.add(1, ordering: .relaxed).oldValue == 0 else { return }
                try! setMode(harness, node, later)
            }
            let found = try harness.volume.attributes(
                of: node, handle: nil, caller: harness.caller, harness.context)
            #expect([0o200, later].contains(found.mode & 0o7777))
            #expect(asked.load(ordering: .relaxed) > 0)
            storage.onAttributeByName(nil)
        }
    }

    // The kernel reads the ACL of each directory of a path: an error would make the whole path
    // fail.
    @Test("a store that knows no ACLs has none, which is no error")
    func withoutACLs() throws {
        let harness = try VolumeHarness(storage: StorageWithoutACLs())
        let node = try makeFile(harness, "f", attribute: "of f")
        #expect(try value(harness, node, Self.accessACL) == nil)
        #expect(try value(harness, 1, Self.accessACL) == nil)
        #expect(try value(harness, 1, "system.posix_acl_default") == nil)
        #expect(throws: Errno.notSupported) { try value(harness, node, "security.selinux") }
        #expect(throws: Errno.notSupported) {
            try harness.withName(Self.accessACL) { name throws(Errno) in
                // Version 2; the owner may read and write.
                let acl: [UInt8] = [2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255]
                return try acl.withUnsafeBytesTyped { value throws(Errno) in
                    try harness.volume.setExtendedAttribute(
                        of: node, name, value: value, flags: 0, dropSetGroupID: false,
                        caller: harness.caller, harness.context)
                }
            }
        }
    }
}

/// Answers as ext4 mounted with `noacl`.
private final class StorageWithoutACLs: PosixStorage, @unchecked Sendable {
    // Sendable: no state is added.
    private func check(_ name: String) throws(Errno) {
        if name.hasPrefix("system.posix_acl_") { throw .notSupported }
    }
    override func getxattr(
        _ descriptor: Int32, _ name: String, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try check(name)
        return try super.getxattr(descriptor, name, buffer)
    }
    override func getxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ name: String,
        _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try check(name)
        return try super.getxattrat(directory, path, name, buffer)
    }
    override func setxattr(
        _ descriptor: Int32, _ name: String, _ value: UnsafeRawBufferPointer, flags: Int32
    ) throws(Errno) {
        try check(name)
        try super.setxattr(descriptor, name, value, flags: flags)
    }
}
