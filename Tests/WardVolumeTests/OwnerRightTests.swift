import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// Changes that only the owner or root may make, also where others may write: a weaker class, and
/// every mark.
@Suite struct OwnerRightTests {
    private static let other = Caller(uid: 4321, gid: 4321, pid: 77)

    private func set(
        _ harness: VolumeHarness, _ node: NodeID, _ name: String, _ value: String,
        as caller: Caller
    ) throws(Errno) {
        try harness.withName(name) { name throws(Errno) in
            try harness.withName(value) { value throws(Errno) in
                try harness.volume.setExtendedAttribute(
                    of: node, name, value: value, flags: 0, dropSetGroupID: false, caller: caller,
                    harness.context)
            }
        }
    }

    private func remove(
        _ harness: VolumeHarness, _ node: NodeID, _ name: String, as caller: Caller
    ) throws(Errno) {
        try harness.withName(name) { name throws(Errno) in
            try harness.volume.removeExtendedAttribute(
                of: node, name, caller: caller, harness.context)
        }
    }

    @Test("A writer who is not the owner makes a class stronger, with an event, and never weaker")
    func classes() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        let (file, handle) = try harness.create("f")
        harness.volume.release(handle, harness.context)
        let directory = try harness.makeDirectory("d")
        for (node, path) in [(file, "/f"), (directory, "/d")] {
            for name in ["user.ward.class", Volume.unsyncedClassName] {
                try set(harness, node, "user.ward.class", "C", as: harness.caller)
                try set(harness, node, name, "A", as: Self.other)
                #expect(try harness.classOf(node) == "NSFileProtectionComplete")
                let told = harness.events.all.contains {
                    if case .note(let text) = $0 {
                        text.contains("4321") && text.contains(path) && text.contains("C to A")
                    } else {
                        false
                    }
                }
                #expect(told, "\(path)")
                for weaker in ["B", "CX", "C", "D"] {
                    #expect(throws: Errno.notPermitted) {
                        try set(harness, node, name, weaker, as: Self.other)
                    }
                }
                // Setting the same class, and removing the attribute, change nothing.
                try set(harness, node, name, "A", as: Self.other)
                try remove(harness, node, "user.ward.class", as: Self.other)
                #expect(try harness.classOf(node) == "NSFileProtectionComplete")
            }
            try set(harness, node, "user.ward.class", "D", as: Caller(uid: 0, gid: 0, pid: 1))
        }
    }

    @Test("Marks are the owner's to set and to remove; other attributes are the writer's")
    func marks() throws {
        let harness = try VolumeHarness()
        let (file, handle) = try harness.create("f")
        harness.volume.release(handle, harness.context)
        let directory = try harness.makeDirectory("d")
        for (node, name, value) in [
            (file, "user.ward.backup-excluded", "1"), (directory, "user.ward.backup-excluded", "1"),
            (directory, "user.ward.synced", "marked"), (file, "user.ward.anything", "x"),
        ] {
            #expect(throws: Errno.notPermitted) {
                try set(harness, node, name, value, as: Self.other)
            }
            try set(harness, node, name, value, as: harness.caller)
            #expect(throws: Errno.notPermitted) { try remove(harness, node, name, as: Self.other) }
            try remove(harness, node, name, as: harness.caller)
        }
        try set(harness, file, "user.note", "n", as: Self.other)
        try remove(harness, file, "user.note", as: Self.other)
    }
}
