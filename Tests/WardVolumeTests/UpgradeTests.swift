import Glibc
import Testing
import WardFormat
import WardKeys
import WardSystem
import WardVolumeCheck

@testable import WardSimulatedStorage
@testable import WardVolume

/// The upgrade from format 1 to format 2 (docs/format.md §10.1).
@Suite struct UpgradeTests {
    @Test(
        "everything reads the same after it, in format 2, with the same pages and keys",
        arguments: UpgradeWorld.Content.allCases, [512, 4096])
    func everything(content: UpgradeWorld.Content, pageBytes: Int) throws {
        let world = try UpgradeWorld(content, pageBytes: pageBytes)
        #expect(!UpgradeWorld.remains(world.image).isEmpty)
        let image = try world.upgraded()
        #expect(try world.differences(image) == [])
        #expect(UpgradeWorld.remains(image) == [])
        #expect(try UpgradeWorld.findings(world.keys, image) == [])
        for (identity, inode) in world.image.inodes
        where inode.links > 0 && inode.mode & S_IFMT == S_IFREG {
            let (old, new) = (world.image.bytes(of: identity), inode.content.size)
            guard old.starts(with: "WARDFILE".utf8), let now = image.inodes[identity] else {
                continue
            }
            #expect(now.content.size >= min(new, pageBytes), "\(identity)")
            // Without a key there is no content behind the header.
            if old[14] == 0 { continue }
            let bytes = image.bytes(of: identity)
            #expect(bytes.dropFirst(256).elementsEqual(old.dropFirst(256)), "pages of \(identity)")
            // A key of 40 bytes is wrapped as before.
            if old[14] == 40 { #expect(bytes[48..<120] == old[48..<120], "key of \(identity)") }
            #expect(now.times.modification.tv_nsec == inode.times.modification.tv_nsec)
        }
        for inode in world.image.inodes.values
        where inode.entries[Array(".ward".utf8)] != nil && inode.identity != 1 {
            let (was, now) = (inode.times, image.inodes[inode.identity]!.times)
            #expect(was.modification.tv_sec == now.modification.tv_sec)
            #expect(was.modification.tv_nsec == now.modification.tv_nsec)
        }
        let disk = SimulatedDisk(image)
        #expect(try UpgradeWorld.upgrade(world.keys, on: disk) == 0, "a second one does nothing")
        #expect(try world.differences(disk.image) == [])
    }

    @Test("attributes of links and FIFOs are carried over, and hard links of links stay together")
    func special() throws {
        let world = try UpgradeWorld(.rest)
        let volume = try CrashVolume(world.keys, on: SimulatedDisk(try world.upgraded()))
        let pipe = try volume.lookup("pipe", in: 1).node
        #expect(try volume.attribute(pipe, "trusted.note") == [5])
        let link = try volume.lookup("border too", in: 1)
        #expect(try volume.attribute(link.node, "trusted.note") == [3, 4])
        #expect(link.attributes.linkCount == 3)
        #expect(link.attributes.sizeBytes == 3040)
        #expect(try volume.lookup("border three", in: 1).node == link.node)
        #expect(volume.events.problems == [])
    }

    @Test("a header of format 1 is read until the upgrade ends, and is damaged after it")
    func endsReading() throws {
        let world = try UpgradeWorld(.features)
        let new = try world.upgraded()
        let identity = world.truth.entries["/one"]!.identity
        let old = world.image.bytes(of: identity)
        let disk = SimulatedDisk(new)
        disk.alter { $0.setBytes(of: identity, old) }
        let volume = try CrashVolume(world.keys, on: disk)
        let node = try volume.lookup("one", in: 1).node
        #expect(throws: Errno.ioError) { try volume.open(node) }

        let begun = SimulatedDisk(world.image)
        try UpgradeWorld.begin(world.keys, on: begun)
        #expect(try world.differences(begun.image) == [])
        #expect(try UpgradeWorld.findings(world.keys, begun.image) == [])
    }

    /// A program that knows format 1 alone looks at the version of the state record, and at that of
    /// the root's record.
    @Test("from the first change on, programs that know format 1 alone refuse the volume")
    func oldPrograms() throws {
        let world = try UpgradeWorld(.rest)
        let disk = SimulatedDisk(world.image)
        let seen = Seen()
        disk.onChange { image, _ in
            let root = image.inodes[DiskImage.rootIdentity]!
            let state = image.bytes(of: root.entries[Array("ward.state".utf8)]!)
            seen.versions.append(state[8])
            let isUntouched = UpgradeWorld.remains(image) == UpgradeWorld.remains(world.image)
            if state[8] == 1, !isUntouched { seen.early += 1 }
        }
        try UpgradeWorld.upgrade(world.keys, on: disk)
        #expect(seen.early == 0)
        #expect(seen.versions.last == 2 && seen.versions == seen.versions.sorted())
    }

    private final class Seen: @unchecked Sendable {
        // Sendable: used by one thread.
        var versions: [UInt8] = []
        var early = 0
    }

    @Test("stopped after any step, the volume is used, and the upgrade goes on")
    func stopped() throws {
        let world = try UpgradeWorld(.places)
        for count in stride(from: 1, to: 200, by: 9) {
            let disk = SimulatedDisk(world.image)
            try UpgradeWorld.begin(world.keys, on: disk)
            let volume = try CrashVolume(world.keys, on: disk)
            let stop = UpgradeWorld.Stop(after: count)
            let report = try VolumeUpgrade(volume.volume, threads: 1, shouldStop: { stop.isDue })
                .run()
            #expect(world.differences(volume) == [], "stopped after \(count)")
            try volume.volume.close()
            if report.isDone { break }
            #expect(report.isInterrupted)
            #expect(try UpgradeWorld.findings(world.keys, disk.image) == [], "after \(count)")
            try UpgradeWorld.upgrade(world.keys, on: disk)
            #expect(try world.differences(disk.image) == [], "after \(count)")
            #expect(UpgradeWorld.remains(disk.image) == [])
        }
    }

    @Test("files of class B wait for an unlock; all others are carried over while locked")
    func locked() throws {
        let world = try UpgradeWorld(.features)
        let disk = SimulatedDisk(world.image)
        try UpgradeWorld.begin(world.keys, on: disk)
        let volume = try CrashVolume(world.keys, on: disk)
        volume.lock()
        let waiting = try VolumeUpgrade(volume.volume, threads: 1).run()
        #expect(waiting.locked == 1 && !waiting.isDone && waiting.left == [])
        #expect(UpgradeWorld.remains(disk.image).count == 1)
        try volume.unlock()
        let report = try VolumeUpgrade(volume.volume, threads: 1).run()
        #expect(report.isDone && report.carriedOver == 1)
        #expect(world.differences(volume) == [])
        try volume.volume.close()
        #expect(try world.differences(disk.image) == [])
        let header = try CrashVolume(world.keys, on: disk)
        let file = try #require(
            header.volume.nodes.node(try header.lookup("b", in: 1).node) as Node?)
        let opened = try header.volume.acquire(file, header.context).file
        #expect(opened.header?.capsuleID != Capsule.noID)
        header.volume.release(opened, header.context)
    }

    @Test("a name that does not open keeps the upgrade from its end, and a repair lets it go on")
    func damagedName() throws {
        let world = try UpgradeWorld(.features)
        let disk = SimulatedDisk(world.image)
        let identity = world.truth.entries["/one"]!.identity
        disk.alter { image in
            var root = image.inodes[DiskImage.rootIdentity]!
            let name = root.entries.first { $0.value == identity }!.key
            root.entries[name] = nil
            root.entries[Array("AAAAAAAAAAAAAAAAAAAAAAAAAAA".utf8)] = identity
            image.inodes[DiskImage.rootIdentity] = root
        }
        try UpgradeWorld.begin(world.keys, on: disk)
        let volume = try CrashVolume(world.keys, on: disk)
        let report = try VolumeUpgrade(volume.volume, threads: 1).run()
        #expect(!report.isDone && report.leftCount == 1)
        #expect(volume.volume.standing == .upgrading)
        _ = VolumeCheck(volume.volume, repairs: true, name: "now", threads: 1).run()
        let again = try VolumeUpgrade(volume.volume, threads: 1).run()
        #expect(again.isDone, "\(again)")
        try volume.volume.close()
        #expect(try UpgradeWorld.findings(world.keys, disk.image) == [])
    }

    @Test("what has to come before the end comes before it, and its failure keeps the volume")
    func beforeEnd() throws {
        let world = try UpgradeWorld(.rest)
        let disk = SimulatedDisk(world.image)
        try UpgradeWorld.begin(world.keys, on: disk)
        let volume = try CrashVolume(world.keys, on: disk)
        #expect(throws: Errno.noSpace) {
            try VolumeUpgrade(volume.volume, threads: 1).run { throw Errno.noSpace }
        }
        #expect(volume.volume.standing == .upgrading)
        var standing: FormatStanding?
        let report = try VolumeUpgrade(volume.volume, threads: 1).run {
            standing = volume.volume.standing
        }
        #expect(report.isDone && standing == .upgrading)
        #expect(volume.volume.standing == FormatStanding(.version2))
        try volume.volume.close()
    }

    @Test("without a sound state record a volume of format 2 may have format 1 left")
    func lostState() throws {
        let world = try UpgradeWorld(.rest)
        let disk = SimulatedDisk(world.image)
        try UpgradeWorld.begin(world.keys, on: disk)
        disk.alter { image in
            let root = image.inodes[DiskImage.rootIdentity]!
            image.flip(root.entries[Array("ward.state".utf8)]!, 30, 1)
        }
        let findings = try Volume.checkRoot(
            backingPath: CrashVolume.path,
            volumeKey: try CrashKeys.secret(world.keys.volumeKey), repairs: true, storage: disk)
        #expect(findings.count == 1 && findings[0].isRepaired)
        #expect(try world.differences(disk.image) == [])
        try UpgradeWorld.upgrade(world.keys, on: disk)
        #expect(try world.differences(disk.image) == [])
    }
}
