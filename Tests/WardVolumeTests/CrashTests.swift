import Glibc
import Synchronization
import Testing
import WardFormat
import WardSimulatedStorage
import WardSystem
import WardVolume

/// Volumes on simulated disks whose power goes after every call (docs/verification.md, "Simulated
/// crashes").
@Suite struct CrashTests {
    /// Fixed seeds; each one once found a fault. `WARD_CRASH_SEED` replays another one.
    private static let seeds: [UInt64] = {
        if let text = getenv("WARD_CRASH_SEED"), let seed = UInt64(String(cString: text)) {
            return [seed]
        }
        return [2, 4, 7, 12, 13, 17, 19, 1_795_592_866_158]
    }()

    @Test(
        "nothing synced is lost and no honest file is refused, wherever the power goes",
        arguments: seeds)
    func fixedSeeds(seed: UInt64) {
        var settings = CrashSettings.promised(seed: seed)
        settings.stride = 4
        let report = CrashRun.run(settings)
        #expect(report.losses == [])
        #expect(report.points > 50)
        #expect(report.operations == settings.operations * settings.lives)
    }

    @Test("a few power cuts for each kind of disk and page, with errors of the store and without")
    func everyKind() {
        // The kinds of disk repeat after 48 seeds. `make crash` takes seeds from the clock.
        let report = CrashCampaign.run(seeds: UInt64(0)..<48, threads: 1) {
            var settings = CrashSettings.promised(seed: $0)
            settings.stride = 60
            settings.lives = 2
            return settings
        } until: {
            false
        }
        #expect(report.losses == [], "WARD_CRASH_SEED with the seed replays it")
        #expect(report.seeds == 48)
        #expect(report.failures > 0)
    }

    @Test("a run is decided by its seed", arguments: [31, 33] as [UInt64])
    func sameSeed(seed: UInt64) {
        var settings = CrashSettings.promised(seed: seed)
        settings.stride = 40
        let reports = [CrashRun.run(settings), CrashRun.run(settings)]
        #expect(reports[0].digest == reports[1].digest)
        #expect(reports[0].points == reports[1].points)
    }

    @Test(
        "it bites: a disk that tears pages of 4,096 bytes loses what the default format does not promise"
    )
    func tornPages() {
        var losses: [String] = []
        for seed in UInt64(1)...40 where losses.isEmpty {
            var settings = CrashSettings(
                seed: seed, disk: DiskKind(order: .journal, atomicBytes: 512), pageBytes: 4096)
            settings.operations = 40
            settings.lives = 1
            losses += CrashRun.run(settings).losses
        }
        #expect(losses.first?.contains("integrity:") == true, "\(losses)")
    }

    // MARK: What it found

    @Test(
        "a file with an attribute that is emptied and written again is the old one or the new one")
    func emptiedAndWritten() throws {
        for pageBytes in [512, 4096] {
            let bench = try CrashBench(
                pageBytes: pageBytes, DiskKind(order: .journal, atomicBytes: pageBytes))
            try bench.volume.setAttribute(bench.node, "user.a", [1, 2, 3])
            try bench.volume.volume.durablePoint()
            let new: [UInt8] = [9, 9, 9]
            try bench.crash {
                try bench.volume.setSize(bench.node, bench.handle, 0)
                try bench.volume.write(bench.handle, 0, new)
            } _: { volume, place in
                let found = try CrashBench.content(volume)
                #expect(
                    found == bench.content || found.isEmpty || found == new,
                    "\(found.count) bytes \(place)")
                let entry = try volume.lookup("file", in: 1)
                #expect(try volume.attribute(entry.node, "user.a") == [1, 2, 3], "\(place)")
                volume.forget(entry.node)
            }
        }
    }

    @Test(
        "a file of one page that is emptied, keeps its header and grows is the old one or a part of the new one",
        arguments: DiskKind.Order.allCases)
    func emptiedAndGrown(order: DiskKind.Order) throws {
        let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
        let old = [UInt8](repeating: 7, count: 1500)
        let new = [UInt8](repeating: 9, count: 12_000)
        try bench.volume.setSize(bench.node, bench.handle, 0)
        try bench.volume.write(bench.handle, 0, old)
        try bench.volume.setAttribute(bench.node, "user.a", [1, 2, 3])
        try bench.volume.fsync(bench.handle)
        try bench.volume.volume.durablePoint()
        try bench.crash([.units], seeds: 40) {
            try bench.volume.setSize(bench.node, bench.handle, 0)
            try bench.volume.write(bench.handle, 0, Array(new[..<100]))
            try bench.volume.write(bench.handle, 100, Array(new[100...]))
            // The size is on the disk, and those pages that were already written.
            try bench.volume.fsyncDirectory(1)
        } _: { volume, place in
            let found = try CrashBench.content(volume)
            #expect(
                found == old || found.allSatisfy { $0 == 9 || $0 == 0 },
                "\(found.count) bytes \(place)")
            let entry = try volume.lookup("file", in: 1)
            #expect(try volume.attribute(entry.node, "user.a") == [1, 2, 3], "\(place)")
            volume.forget(entry.node)
        }
    }

    @Test("a new file whose first page did not make it is an empty file, and can be written")
    func firstPageLost() throws {
        let bench = try CrashBench()
        try bench.crash([.units], seeds: 60) {
            let (_, handle) = try bench.volume.create("new", in: 1)
            try bench.volume.write(handle, 0, bench.content)
            try bench.volume.fsyncDirectory(1)
            bench.volume.release(handle)
        } _: { volume, place in
            guard let entry = try? volume.lookup("new", in: 1) else { return }
            let handle = try volume.open(entry.node)
            _ = try volume.read(handle)
            try volume.setSize(entry.node, handle, 0)
            try volume.write(handle, 0, [1, 2, 3])
            try volume.fsync(handle)
            volume.release(handle)
            volume.forget(entry.node)
            volume.volume.mendDoubtfulFiles { false }
            try volume.volume.close()
            #expect(!volume.volume.isInDoubt)
            let again = try CrashVolume(bench.keys, on: SimulatedDisk(volume.disk.image))
            #expect(try CrashBench.content(again, "new") == [1, 2, 3], "\(place)")
        }
    }

    @Test("outside a doubtful interval a file without its first page is refused")
    func firstPageWiped() throws {
        let bench = try CrashBench()
        bench.volume.release(bench.handle)
        try bench.volume.volume.close()
        let number = try bench.volume.attributes(bench.node).inode
        #expect(
            bench.disk.tamper(number) { bytes in
                for index in 0..<4096 { bytes[index] = 0 }
                return true
            })
        let volume = try CrashVolume(bench.keys, on: SimulatedDisk(bench.disk.image))
        #expect(throws: Errno.ioError) { try CrashBench.content(volume) }
    }

    @Test("a hole punched behind the end that the disk knows is not a truncation")
    func punchedAtTheEnd() throws {
        let bench = try CrashBench(pages: 5)
        let grown = bench.content + [UInt8](repeating: 5, count: 9000)
        let start = bench.layout.start(ofPage: 2)
        try bench.crash {
            try bench.volume.write(
                bench.handle, bench.content.count, Array(grown[bench.content.count...]))
            try bench.volume.volume.allocate(
                bench.handle, mode: 3, offsetBytes: UInt64(start),
                lengthBytes: UInt64(bench.layout.start(ofPage: 6) - start),
                caller: CrashBench.caller, bench.volume.context)
            // Commits the journal, and with it the hole, but no data of this file.
            try bench.volume.fsyncDirectory(1)
            let (_, other) = try bench.volume.create("other", in: 1)
            try bench.volume.fsync(other)
            bench.volume.release(other)
        } _: { volume, place in
            let found = try CrashBench.content(volume)
            #expect(found.count >= bench.content.count, "\(found.count) bytes \(place)")
            #expect(found.prefix(start) == bench.content.prefix(start), "\(place)")
        }
    }

    @Test("writing to a file that is not mended does not take away what excuses its other pages")
    func writingBesideAFinding() throws {
        let bench = try CrashBench(pages: 6)
        // The second page is in doubt, and the one after it is lost, because the disk had not
        // written it.
        let more = [UInt8](repeating: 3, count: 4 * 4060)
        var seen = 0
        try bench.crash([.units], seeds: 80) {
            try bench.volume.write(bench.handle, bench.content.count, more)
        } _: { volume, place in
            let before = try CrashBench.content(volume)
            let entry = try volume.lookup("file", in: 1)
            let handle = try volume.open(entry.node)
            defer {
                volume.release(handle)
                volume.forget(entry.node)
            }
            // Every page but one is written by a write of its own.
            for page in 0..<bench.layout.pageCount(forSize: before.count) where page != 7 {
                let start = bench.layout.start(ofPage: page)
                try volume.write(handle, start, [before[start]])
            }
            #expect(try volume.read(handle) == before, "\(place)")
            if before.count > bench.content.count { seen += 1 }
        }
        #expect(seen > 0)
    }

    @Test("an attribute that outlived its file's header does not damage the file")
    func attributeWithoutHeader() throws {
        let bench = try CrashBench()
        try bench.crash([.namesWithoutData, .units], seeds: 30) {
            let (entry, handle) = try bench.volume.create("new", in: 1)
            try bench.volume.setAttribute(entry.node, "user.a", [1])
            try bench.volume.fsyncDirectory(1)
            bench.volume.release(handle)
        } _: { volume, place in
            guard let entry = try? volume.lookup("new", in: 1) else { return }
            let handle = try volume.open(entry.node)
            try volume.write(handle, 0, [1, 2, 3])
            let value = try volume.attribute(entry.node, "user.a")
            #expect(value == nil || value == [1], "\(place)")
            _ = try volume.volume.extendedAttributeNames(of: entry.node, volume.context)
            volume.release(handle)
            volume.forget(entry.node)
            // After this pass nothing needs an excuse.
            volume.volume.mendDoubtfulFiles { false }
            try volume.volume.close()
            let again = try CrashVolume(bench.keys, on: SimulatedDisk(volume.disk.image))
            let found = try again.lookup("new", in: 1)
            #expect(try again.attribute(found.node, "user.a") == value, "\(place)")
            again.forget(found.node)
        }
    }

    @Test(
        "a file whose data is not on the disk keeps its class when its directory gets another one, or it another directory"
    )
    func classOfUnsyncedFiles() throws {
        let bench = try CrashBench()
        let directory = try bench.volume.makeDirectory("secret", in: 1)
        try bench.volume.setClass(directory.node, .complete)
        try bench.volume.volume.durablePoint()
        try bench.crash {
            let (_, a) = try bench.volume.create("a", in: directory.node)
            try bench.volume.write(a, 0, bench.content)
            bench.volume.release(a)
            try bench.volume.rename("a", in: directory.node, to: "moved", in: 1)
            let (_, b) = try bench.volume.create("b", in: directory.node)
            try bench.volume.write(b, 0, bench.content)
            bench.volume.release(b)
            try bench.volume.setClass(directory.node, .none)
            try bench.volume.fsyncDirectory(directory.node)
        } _: { volume, place in
            if let moved = try? volume.lookup("moved", in: 1) {
                #expect(try volume.classOf(moved.node) == .complete, "\(place)")
                volume.forget(moved.node)
            }
            let directory = try volume.lookup("secret", in: 1)
            if let b = try? volume.lookup("b", in: directory.node) {
                #expect(try volume.classOf(b.node) == .complete, "\(place)")
                volume.forget(b.node)
            }
            volume.forget(directory.node)
        }
    }

    @Test(
        "a file of which only the size is on the disk keeps its class when its directory gets another one"
    )
    func classOfAFileOfZeros() throws {
        let bench = try CrashBench()
        let directory = try bench.volume.makeDirectory("secret", in: 1)
        try bench.volume.setClass(directory.node, .complete)
        try bench.volume.volume.durablePoint()
        var seen = 0
        try bench.crash([.namesWithoutData], seeds: 1) {
            let (_, handle) = try bench.volume.create("new", in: directory.node)
            try bench.volume.write(handle, 0, bench.content)
            bench.volume.release(handle)
            try bench.volume.fsyncDirectory(directory.node)
        } _: { volume, place in
            let directory = try volume.lookup("secret", in: 1)
            guard try volume.names(in: directory.node) == ["new"] else { return }
            try volume.setClass(directory.node, .none)
            let entry = try volume.lookup("new", in: directory.node)
            #expect(try volume.classOf(entry.node) == .complete, "\(place)")
            volume.forget(entry.node)
            volume.forget(directory.node)
            seen += 1
        }
        #expect(seen > 0)
    }

    /// Found by seed 1795370925031 of `make crash`.
    @Test(
        "a file that is moved out of a directory of another class and emptied keeps its class, be it still in there",
        arguments: DiskKind.Order.allCases)
    func movedAndEmptied(order: DiskKind.Order) throws {
        let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
        let directory = try bench.volume.makeDirectory("secret", in: 1)
        let (_, handle) = try bench.volume.create("file", in: directory.node)
        try bench.volume.write(handle, 0, bench.content)
        try bench.volume.setClass(directory.node, .complete)
        try bench.volume.volume.durablePoint()
        var places: Set<String> = []
        try bench.crash {
            try bench.volume.rename("file", in: directory.node, to: "moved", in: 1)
            let moved = try bench.volume.lookup("moved", in: 1)
            try bench.volume.setSize(moved.node, handle, 0)
            bench.volume.release(handle)
            bench.volume.forget(moved.node)
        } _: { volume, place in
            let directory = try volume.lookup("secret", in: 1)
            for (name, parent) in [("file", directory.node), ("moved", 1)] {
                guard let entry = try? volume.lookup(name, in: parent) else { continue }
                #expect(try volume.classOf(entry.node) == .none, "\(name) \(place)")
                places.insert(name)
                volume.forget(entry.node)
            }
            volume.forget(directory.node)
        }
        #expect(places.count == 2)
    }

    /// Found by seed 1795390394283 of `make crash`.
    @Test(
        "a new file with names in directories of two classes has one class, by whichever name it is found"
    )
    func oneClassByEachName() throws {
        let bench = try CrashBench()
        let directory = try bench.volume.makeDirectory("secret", in: 1)
        try bench.volume.setClass(directory.node, .completeUntilFirstUserAuthentication)
        try bench.volume.volume.durablePoint()
        let images = Mutex<[DiskImage]>([])
        bench.disk.onChange { image, _ in images.withLock { $0.append(image) } }
        let (entry, handle) = try bench.volume.create("new", in: directory.node)
        try bench.volume.write(handle, 0, bench.content)
        try bench.volume.setClass(entry.node, .none)
        _ = try bench.volume.link(entry.node, to: "second", in: 1)
        bench.volume.release(handle)
        bench.disk.onChange(nil)
        for image in images.withLock({ $0 }) {
            for survival in Survival.allCases {
                let left = image.afterPowerCut(survival, seed: 1)
                let first = try CrashVolume(bench.keys, on: SimulatedDisk(left))
                guard let second = try? first.lookup("second", in: 1) else { continue }
                let other = try CrashVolume(bench.keys, on: SimulatedDisk(left))
                let secret = try other.lookup("secret", in: 1)
                let new = try other.lookup("new", in: secret.node)
                #expect(try first.classOf(second.node) == other.classOf(new.node), "\(survival)")
            }
        }
    }

    @Test("the class of a directory, weaker or stronger, is durable when the call returns")
    func classOfADirectory() throws {
        for order in DiskKind.Order.allCases {
            let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
            let directory = try bench.volume.makeDirectory("directory", in: 1)
            for wanted in [ProtectionClass.complete, .none] {
                try bench.volume.setClass(directory.node, wanted)
                try bench.volume.fsyncDirectory(1)
                let left = try CrashVolume(
                    bench.keys,
                    on: SimulatedDisk(bench.disk.image.afterPowerCut(.onlyFlushed, seed: 0)))
                let found = try left.lookup("directory", in: 1)
                #expect(try left.classOf(found.node) == wanted, "\(order)")
                left.forget(found.node)
            }
        }
    }

    @Test("fsync of a file with many names syncs their directory once")
    func manyNames() throws {
        let bench = try CrashBench()
        for number in 0..<40 {
            bench.volume.forget(try bench.volume.link(bench.node, to: "\(number)", in: 1).node)
        }
        let before = bench.disk.changes
        try bench.volume.fsync(bench.handle)
        #expect(bench.disk.changes - before == 2)
    }

    @Test(
        "fsync makes the names of directories above durable, too: after a move, and after the kernel forgot"
    )
    func namesUpToTheRoot() throws {
        for order in DiskKind.Order.allCases {
            let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
            let volume = bench.volume
            let directory = try volume.makeDirectory("old", in: 1)
            let (made, handle) = try volume.create("file", in: directory.node)
            try volume.write(handle, 0, [1])
            try volume.fsync(handle)
            try volume.rename("old", in: 1, to: "new", in: 1)
            try volume.write(handle, 0, [2])
            try volume.fsync(handle)
            let second = try volume.makeDirectory("second", in: 1)
            let (inside, other) = try volume.create("file", in: second.node)
            volume.release(other)
            volume.forget(inside.node)
            volume.forget(second.node)
            let again = try volume.lookup("second", in: 1)
            let file = try volume.lookup("file", in: again.node)
            let reopened = try volume.open(file.node)
            try volume.write(reopened, 0, [3])
            try volume.fsync(reopened)

            let left = try CrashVolume(
                bench.keys, on: SimulatedDisk(bench.disk.image.afterPowerCut(.onlyFlushed, seed: 0))
            )
            #expect(try left.names(in: 1).filter { $0 != "file" } == ["new", "second"], "\(order)")
            for name in ["new", "second"] {
                let directory = try left.lookup(name, in: 1)
                #expect(try left.names(in: directory.node) == ["file"], "\(order)")
                left.forget(directory.node)
            }
            volume.release(handle)
            volume.release(reopened)
            volume.forget(made.node)
        }
    }

    // MARK: Strictness

    @Test("no truncation, wiped page or older size is accepted where nothing is in doubt")
    func strictness() throws {
        for attack in ["cut", "cut to the first page", "wiped", "wiped last", "wiped first"] {
            for isInUse in [false, true] {
                let bench = try CrashBench(pages: 4)
                // An unclean end, long after the file was made durable: other files are in doubt,
                // this one is not.
                if !isInUse { try bench.volume.volume.close() }
                let number = try bench.volume.attributes(bench.node).inode
                let image = SimulatedDisk(bench.disk.image.afterPowerCut(.everything, seed: 0))
                let isChanged = image.tamper(number) { bytes in
                    switch attack {
                    case "cut": bytes.removeLast(bytes.count - 2 * 4096)
                    case "cut to the first page": bytes.removeLast(bytes.count - 4096)
                    case "wiped": for index in 4096..<8192 { bytes[index] = 0 }
                    case "wiped first": for index in 0..<4096 { bytes[index] = 0 }
                    default: for index in (3 * 4096)..<bytes.count { bytes[index] = 0 }
                    }
                    return true
                }
                #expect(isChanged)
                let volume = try CrashVolume(bench.keys, on: image)
                #expect(volume.volume.isInDoubt == isInUse)
                #expect(throws: Errno.ioError, "\(attack), in use: \(isInUse)") {
                    try CrashBench.content(volume)
                }
                bench.volume.release(bench.handle)
            }
        }
    }

    @Test("a header with a key and no content is refused, in doubt and outside")
    func keyWithoutContent() throws {
        for isInUse in [false, true] {
            let bench = try CrashBench(pages: 1)
            if isInUse {
                try bench.volume.write(bench.handle, 0, [1, 2, 3])
            } else {
                try bench.volume.volume.close()
            }
            let number = try bench.volume.attributes(bench.node).inode
            let image = SimulatedDisk(bench.disk.image.afterPowerCut(.everything, seed: 0))
            #expect(
                image.tamper(number) { bytes in
                    for index in 256..<4096 { bytes[index] = 0 }
                    return true
                })
            let volume = try CrashVolume(bench.keys, on: image)
            #expect(volume.volume.isInDoubt == isInUse)
            #expect(throws: Errno.ioError, "in use: \(isInUse)") {
                try CrashBench.content(volume)
            }
            bench.volume.release(bench.handle)
        }
    }

    @Test("in a volume that is in doubt, files that were made or mended since are not")
    func newFilesAreNotInDoubt() throws {
        let bench = try CrashBench(pages: 6)
        let recovered = try CrashVolume(
            bench.keys, on: SimulatedDisk(bench.disk.image.afterPowerCut(.everything, seed: 0)))
        let (made, handle) = try recovered.create("new", in: 1)
        try recovered.write(handle, 0, bench.content)
        recovered.release(handle)
        // Written again after a second open: its epochs show that.
        let again = try recovered.open(made.node)
        try recovered.write(again, 5000, [1, 2, 3])
        recovered.release(again)
        // But not a file that was there before and is written now.
        let old = try recovered.lookup("file", in: 1)
        let oldHandle = try recovered.open(old.node)
        try recovered.write(oldHandle, 0, bench.content)
        recovered.release(oldHandle)
        try recovered.volume.close()
        let numbers = (made.attributes.inode, old.attributes.inode)
        for (number, name) in [(numbers.0, "new"), (numbers.1, "file")] {
            let image = SimulatedDisk(recovered.disk.image)
            #expect(
                image.tamper(number) { bytes in
                    for index in 8192..<12288 { bytes[index] = 0 }
                    return true
                })
            let volume = try CrashVolume(bench.keys, on: image)
            #expect(volume.volume.isInDoubt, "nobody mended it")
            if name == "new" {
                #expect(throws: Errno.ioError) { try CrashBench.content(volume, name) }
            } else {
                #expect(try CrashBench.content(volume, name).count == bench.content.count)
            }
        }
    }
}
