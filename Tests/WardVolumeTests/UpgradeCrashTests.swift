import Glibc
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardSimulatedStorage
@testable import WardVolume

/// Power cuts, errors of the store, and programs at work during an upgrade.
@Suite struct UpgradeCrashTests {
    @Test(
        "wherever the power goes, everything reads the same, and the upgrade goes on",
        arguments: UpgradeWorld.Content.allCases, DiskKind.Order.allCases)
    func powerCuts(content: UpgradeWorld.Content, order: DiskKind.Order) throws {
        let world = try UpgradeWorld(content, order: order)
        let disk = SimulatedDisk(world.image)
        let images = Images()
        disk.onChange { image, name in images.all.append((image, "\(name)")) }
        try UpgradeWorld.upgrade(world.keys, on: disk)
        disk.onChange(nil)
        for (index, (image, name)) in images.all.enumerated() where index % 7 == 0 {
            let survival = Survival.allCases[index / 7 % Survival.allCases.count]
            let left = image.afterPowerCut(survival, seed: UInt64(index))
            let place = "after call \(index), \(name), \(survival)"
            let cut = SimulatedDisk(left)
            #expect(try world.differences(cut.image) == [], "\(place)")
            try UpgradeWorld.upgrade(world.keys, on: cut)
            #expect(try world.differences(cut.image) == [], "\(place), upgraded")
            #expect(UpgradeWorld.remains(cut.image) == [], "\(place)")
        }
        #expect(images.all.count > 50)
    }

    @Test(
        "an error of the store at any call leaves what is there, and the upgrade goes on",
        arguments: [Errno.ioError, .noSpace])
    func errors(error: Errno) throws {
        let world = try UpgradeWorld(.places)
        for after in stride(from: 0, to: 700, by: 23) {
            let disk = SimulatedDisk(world.image)
            disk.fail(SimulatedDisk.Faults(after: after, error, hitsLooks: true))
            var isDone = false
            do {
                try UpgradeWorld.begin(world.keys, on: disk)
                let volume = try CrashVolume(world.keys, on: disk)
                isDone = try VolumeUpgrade(volume.volume, threads: 1).run().isDone
                try volume.volume.close()
            } catch {
                // The next run does the rest.
            }
            disk.fail(nil)
            #expect(try world.differences(disk.image) == [], "\(error) at call \(after)")
            if isDone { #expect(UpgradeWorld.remains(disk.image) == [], "call \(after)") }
            try UpgradeWorld.upgrade(world.keys, on: disk)
            #expect(try world.differences(disk.image) == [], "\(error) at call \(after)")
            #expect(UpgradeWorld.remains(disk.image) == [], "\(error) at call \(after)")
        }
    }

    @Test("programs change what is there between the steps of an upgrade")
    func work() throws {
        let world = try UpgradeWorld(.places)
        // The same changes in a volume of format 1 say what has to be seen.
        let plain = SimulatedDisk(world.image)
        let expected = try CrashVolume(world.keys, on: plain)
        try UpgradeCrashTests.change(expected)
        try expected.volume.close()
        let truth = try Sight(CrashVolume(world.keys, on: plain))
        for count in stride(from: 0, to: 200, by: 13) {
            let disk = SimulatedDisk(world.image)
            try UpgradeWorld.begin(world.keys, on: disk)
            var volume = try CrashVolume(world.keys, on: disk)
            let stop = UpgradeWorld.Stop(after: count)
            let report = try VolumeUpgrade(volume.volume, threads: 1, shouldStop: { stop.isDue })
                .run()
            try volume.volume.close()
            volume = try CrashVolume(world.keys, on: disk)
            try UpgradeCrashTests.change(volume)
            func differences(_ volume: CrashVolume) -> [String] {
                UpgradeWorld.differences(truth, Sight(volume, expecting: truth))
                    + volume.events.problems
            }
            #expect(differences(volume) == [], "after \(count)")
            try volume.volume.close()
            #expect(try UpgradeWorld.findings(world.keys, disk.image) == [], "after \(count)")
            try UpgradeWorld.upgrade(world.keys, on: disk)
            let upgraded = try CrashVolume(world.keys, on: disk)
            #expect(differences(upgraded) == [], "after \(count), upgraded")
            try upgraded.volume.close()
            #expect(UpgradeWorld.remains(disk.image) == [])
            #expect(try UpgradeWorld.findings(world.keys, disk.image) == [], "after \(count)")
            if report.isDone { break }
        }
    }

    /// Writes, renames across directories, links, removals and attributes, on things of each kind.
    private static func change(_ volume: CrashVolume) throws {
        let a = try volume.lookup("a", in: 1).node
        let b = try volume.lookup("b", in: 1).node
        let file = try volume.lookup("file", in: a).node
        let handle = try volume.open(file)
        try volume.write(handle, 20, TamperedVolume.bytes(9000, 5))
        volume.release(handle)
        try volume.rename("large", in: a, to: "large from a", in: b)
        try volume.rename("directory", in: a, to: "directory from a", in: b)
        try volume.rename("link", in: a, to: "link from a", in: b)
        try volume.rename("far link", in: a, to: "far link from a", in: b)
        try volume.rename("moved link", in: a, to: "moved link from a", in: b)
        _ = try volume.link(file, to: "file of a", in: b)
        _ = try volume.link(try volume.lookup("note", in: a).node, to: "note too", in: a)
        try volume.unlink("shared", in: b)
        try volume.unlink("shared too", in: a)
        try volume.unlink("shared link", in: a)
        try volume.setAttribute(try volume.lookup("note", in: b).node, "user.note", [7])
        try volume.setAttribute(file, "user.new", [8])
        let emptied = try volume.lookup("moved file", in: b).node
        let opened = try volume.open(emptied)
        try volume.setSize(emptied, opened, 0)
        try volume.write(opened, 0, [1, 2, 3])
        volume.release(opened)
        try volume.setClass(try volume.lookup("file", in: b).node, .completeUnlessOpen)
        try volume.setClass(b, .complete)
        let made = try volume.makeDirectory("made", in: a).node
        let (_, new) = try volume.create("new", in: made)
        try volume.write(new, 0, TamperedVolume.bytes(50, 6))
        volume.release(new)
        _ = try volume.makeLink("new link", in: made, to: "new target")
        try volume.rename("sparse", in: b, to: "sparse", in: made)
    }

    private final class Images: @unchecked Sendable {
        // Sendable: used by one thread.
        var all: [(DiskImage, String)] = []
    }
}
