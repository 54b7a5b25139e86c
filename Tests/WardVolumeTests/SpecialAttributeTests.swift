import Glibc
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardVolume

/// `trusted.*` attributes of entries without content: as on ext4, root sets them on symbolic links,
/// FIFOs and devices.
@Suite(.enabled(if: geteuid() == 0)) struct SpecialAttributeTests {
    @Test("Set, read, listed, removed; encrypted in the store, and there after a mount")
    func attributes() throws {
        let harness = try VolumeHarness()
        _ = try harness.withName("link") { name throws(Errno) in
            try harness.withName("target") { target throws(Errno) in
                try harness.volume.makeSymbolicLink(
                    1, name, target: target, caller: harness.caller, harness.context)
            }
        }
        for (name, type) in [("fifo", S_IFIFO), ("device", S_IFCHR)] {
            _ = try harness.withName(name) { name throws(Errno) in
                try harness.volume.makeNode(
                    1, name, mode: UInt32(type) | 0o600, device: 0, umask: 0,
                    caller: harness.caller, harness.context)
            }
        }
        func value(_ node: NodeID) throws(Errno) -> [UInt8] {
            try harness.withName("trusted.note") { name throws(Errno) in
                try harness.volume.extendedAttribute(of: node, name, harness.context)
            }
        }
        for name in ["link", "fifo", "device"] {
            let node = try harness.lookup(name).node
            try harness.withName("trusted.note") { name throws(Errno) in
                try harness.withName("value") { value throws(Errno) in
                    try harness.volume.setExtendedAttribute(
                        of: node, name, value: value, flags: 0, dropSetGroupID: false,
                        caller: harness.caller, harness.context)
                }
            }
            #expect(try value(node) == Array("value".utf8), "\(name)")
        }
        try harness.reopen()
        for name in ["link", "fifo", "device"] {
            let node = try harness.lookup(name).node
            #expect(try value(node) == Array("value".utf8), "\(name)")
            #expect(
                try harness.volume.extendedAttributeNames(of: node, harness.context)
                    == Array("trusted.note".utf8) + [0], "\(name)")
            try harness.withName("trusted.note") { name throws(Errno) in
                try harness.volume.removeExtendedAttribute(
                    of: node, name, caller: harness.caller, harness.context)
            }
            #expect(throws: Errno.noData, "\(name)") { try value(node) }
        }
        let report = VolumeCheck(harness.volume, repairs: false, name: "now", threads: 1).run()
        #expect(report.findings.isEmpty && report.unreachable.isEmpty)
    }
}
