import Glibc
import Testing
import WardFormat
import WardSimulatedStorage
import WardSystem
import WardVolumeCheck

@testable import WardVolume

/// Targets of symbolic links that are too long for a link of the backing store (docs/format.md §7).
@Suite struct LongTargetTests {
    private func target(_ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(ascii: "a") + UInt8($0 % 26) }
    }

    @discardableResult
    private func makeLink(
        _ harness: VolumeHarness, _ name: String, _ target: [UInt8], in parent: NodeID = 1
    ) throws(Errno) -> Entry {
        try harness.withName(name) { name throws(Errno) in
            try target.withUnsafeBytesTyped { target throws(Errno) in
                try harness.volume.makeSymbolicLink(
                    parent, name, target: target, caller: harness.caller, harness.context)
            }
        }
    }

    private func read(
        _ harness: VolumeHarness, _ name: String, in parent: NodeID = 1
    ) throws(Errno) -> [UInt8] {
        try harness.volume.readLink(try harness.lookup(name, in: parent).node, harness.context)
    }

    private func unlink(
        _ harness: VolumeHarness, _ name: String, in parent: NodeID = 1
    ) throws(Errno) {
        try harness.withName(name) { name throws(Errno) in
            try harness.volume.unlink(parent, name, caller: harness.caller, harness.context)
        }
    }

    private func kept(_ harness: VolumeHarness) -> [String] {
        guard
            let directory = try? OwnedDescriptor(
                opening: harness.directory + "/ward.links", O_RDONLY | O_DIRECTORY),
            let names = try? DirectoryReading.names(in: directory.rawValue)
        else { return [] }
        return names.map { String(decoding: $0, as: UTF8.self) }
    }

    @Test(
        "Every length to the kernel's limit, in stat as well, before and after a mount",
        arguments: VolumeFormat.allCases)
    func lengths(format: VolumeFormat) throws {
        let harness = try VolumeHarness(format: format)
        let most = format >= .version2 ? 3031 : 3043
        let lengths = [1, most, most + 1, most + 2, 4094, 4095]
        for count in lengths { try makeLink(harness, "\(count)", target(count)) }
        #expect(throws: Errno.fileNameTooLong) { try makeLink(harness, "more", target(4096)) }
        #expect(throws: Errno.fileExists) { try makeLink(harness, "4095", target(4000)) }
        #expect(kept(harness).count == 4)
        for _ in 0..<2 {
            for count in lengths {
                #expect(try read(harness, "\(count)") == target(count))
                let entry = try harness.lookup("\(count)")
                #expect(entry.attributes.sizeBytes == UInt64(count))
            }
            #expect(try harness.names() == lengths.map { "\($0)" }.sorted())
            try harness.reopen()
        }
    }

    @Test(
        "Moved, exchanged, replaced and linked it stays; it goes with the last name",
        arguments: VolumeFormat.allCases)
    func names(format: VolumeFormat) throws {
        let harness = try VolumeHarness(format: format)
        let directory = try harness.makeDirectory("d")
        let node = try makeLink(harness, "a", target(4000)).node
        try makeLink(harness, "b", target(3500))
        try harness.rename("a", 1, "moved", directory)
        try harness.rename("moved", directory, "b", 1, flags: renameExchange)
        #expect(try read(harness, "b") == target(4000))
        #expect(try read(harness, "moved", in: directory) == target(3500))
        try harness.withName("second") { name throws(Errno) in
            _ = try harness.volume.link(
                node, directory, name, caller: harness.caller, harness.context)
        }
        try unlink(harness, "b")
        #expect(kept(harness).count == 2)
        #expect(try read(harness, "second", in: directory) == target(4000))
        try makeLink(harness, "short", target(10))
        try harness.rename("short", 1, "moved", directory)
        #expect(kept(harness).count == 1)
        try unlink(harness, "second", in: directory)
        #expect(kept(harness).isEmpty)
    }

    @Test(
        "What was changed or exchanged in the store is EIO and a finding; what has no link goes to the quarantine",
        arguments: VolumeFormat.allCases)
    func check(format: VolumeFormat) throws {
        let harness = try VolumeHarness(format: format)
        for (name, count) in [("a", 3500), ("b", 3500), ("c", 3600), ("whole", 4000)] {
            try makeLink(harness, name, target(count))
        }
        func check(repairs: Bool) -> CheckReport {
            VolumeCheck(harness.volume, repairs: repairs, name: "now", threads: 1).run()
        }
        #expect(check(repairs: false).findings.isEmpty)
        let links = harness.directory + "/ward.links/"
        func file(_ name: String) throws -> String {
            let (node, context) = (try harness.lookup(name).node, harness.context)
            let stored = try harness.volume.backing.withLink(of: harness.volume.node(node)) {
                directory, name throws(Errno) in
                let count = try harness.volume.storage.readlinkat(
                    directory, name, context.sealed, 4096)
                return [UInt8](UnsafeRawBufferPointer(start: context.sealed, count: count))
            }
            let origin = format >= .version2 ? harness.volume.keys.rootID : []
            guard case .long(let long) = harness.volume.linkContent(stored, origin: origin) else {
                throw Errno.ioError
            }
            return links + long.fileName
        }
        let (a, b) = (try file("a"), try file("b"))
        #expect(rename(a, links + "x") == 0 && rename(b, a) == 0 && rename(links + "x", b) == 0)
        #expect(Glibc.unlink(try file("c")) == 0)
        for name in ["a", "b", "c"] {
            #expect(throws: Errno.ioError) { try read(harness, name) }
        }
        #expect(try read(harness, "whole") == target(4000))
        let found = check(repairs: false)
        #expect(found.findings.filter { $0.kind == .link }.count == 3)
        let repaired = check(repairs: true)
        #expect(repaired.findings.allSatisfy { $0.isRepaired })
        _ = check(repairs: true)
        #expect(check(repairs: true).findings.isEmpty)
        #expect(try harness.names().contains("whole") && kept(harness).count == 1)
        #expect(try read(harness, "whole") == target(4000))
    }

    @Test(
        "A power cut at any moment: the old link or the new, never one without its target",
        arguments: DiskKind.Order.allCases)
    func powerCuts(order: DiskKind.Order) throws {
        let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
        let volume = bench.volume
        func text(_ letter: String) -> String { String(repeating: letter, count: 4000) }
        _ = try volume.makeLink("link", in: 1, to: text("o"))
        try volume.volume.durablePoint()
        try bench.crash(seeds: 4) {
            _ = try volume.makeLink("next", in: 1, to: text("n"))
            try volume.rename("next", in: 1, to: "link", in: 1)
            _ = try volume.makeLink("again", in: 1, to: text("a"))
            try volume.unlink("again", in: 1)
            try volume.volume.durablePoint()
        } _: { left, place in
            for name in ["link", "next", "again"] {
                guard let node = try? left.lookup(name, in: 1).node else {
                    #expect(name != "link", "\(place)")
                    continue
                }
                let found = try left.volume.readLink(node, left.context)
                #expect(
                    ["o", "n", "a"].contains { found == Array(text($0).utf8) }, "\(place): \(name)")
                left.forget(node)
            }
        }
    }
}
