import Glibc
import Testing
import WardFormat
import WardSimulatedStorage
import WardSystem
import WardVolume

/// The backing store fails, at every call in turn. The program gets the error, nothing acknowledged
/// is lost, nothing leaks, and later calls work.
@Suite struct CrashErrorTests {
    /// Runs a seed in which calls of the store fail.
    private func losesNothing(
        _ settings: CrashSettings, location: SourceLocation = #_sourceLocation
    ) {
        let report = CrashRun.run(settings)
        #expect(report.losses == [], sourceLocation: location)
        #expect(report.failures > 0, sourceLocation: location)
    }

    /// A truncation by name whose closing sync fails, and which looks at the file once more.
    @Test("A seed of make crash in which an operation loses pages and opens the file again")
    func lostAndOpenedAgain() {
        var settings = CrashSettings.promised(seed: 1_795_856_112_463)
        settings.stride = 64
        losesNothing(settings)
    }

    /// An error that comes after the name was made, on a disk that does not keep the order.
    @Test("A seed of make crash in which mkdir fails late, and the power is cut")
    func directoryTakenBack() {
        var settings = CrashSettings.promised(seed: 1_795_856_114_047)
        settings.lives = 1
        losesNothing(settings)
    }

    @Test(
        "random operations, one in three on a store that fails",
        arguments: [24, 33, 44] as [UInt64])
    func fixedSeeds(seed: UInt64) {
        var settings = CrashSettings.promised(seed: seed)
        settings.stride = 8
        losesNothing(settings)
    }

    @Test(
        "the n-th call fails, for every n: the old or the new content, and everything goes on",
        arguments: [512, 4096], [Errno.noSpace, .ioError])
    func everyCallFails(pageBytes: Int, error: Errno) throws {
        let actions: [(String, (CrashBench) throws -> [UInt8])] = [
            (
                "append",
                { bench in
                    let more = [UInt8](repeating: 3, count: 3 * pageBytes)
                    try bench.volume.write(bench.handle, bench.content.count, more)
                    return bench.content + more
                }
            ),
            (
                "beyond",
                { bench in
                    let gap = 7 * pageBytes
                    try bench.volume.write(bench.handle, bench.content.count + gap, [7])
                    return bench.content + [UInt8](repeating: 0, count: gap) + [7]
                }
            ),
            (
                "empty and write",
                { bench in
                    try bench.volume.setAttribute(bench.node, "user.a", [1])
                    try bench.volume.setSize(bench.node, bench.handle, 0)
                    return []
                }
            ),
            (
                "shorten",
                { bench in
                    try bench.volume.setSize(bench.node, bench.handle, pageBytes + 7)
                    return Array(bench.content.prefix(pageBytes + 7))
                }
            ),
            (
                "class",
                { bench in
                    try bench.volume.setClass(bench.node, .complete)
                    return bench.content
                }
            ),
        ]
        for (name, action) in actions {
            for call in 0..<40 {
                let bench = try CrashBench(pageBytes: pageBytes)
                bench.disk.fail(.init(after: call, error, writesHalf: true))
                let expected = try? action(bench)
                let wasReached = bench.disk.hasFailed
                bench.disk.fail(nil)
                let place = "\(name), call \(call)"
                let now = try bench.volume.read(bench.handle)
                if let expected {
                    #expect(now == expected, "\(place)")
                } else if name != "shorten", name != "empty and write" {
                    #expect(now == bench.content, "\(place)")
                } else {
                    #expect(bench.content.starts(with: now), "\(place): \(now.count)")
                }
                try bench.volume.write(bench.handle, 0, bench.content)
                bench.volume.release(bench.handle)
                bench.volume.forget(bench.node)
                try bench.volume.volume.close()
                let again = try CrashVolume(bench.keys, on: SimulatedDisk(bench.disk.image))
                #expect(
                    try CrashBench.content(again).starts(with: bench.content),
                    "\(place), mounted again")
                if !wasReached { break }
            }
        }
    }

    /// Operations on names and attributes of entries that exist: "old", a directory "sub", and
    /// `name`.
    private static func operations(
        _ name: String
    ) -> [(String, (CrashBench, NodeID) throws -> Void)] {
        [
            (
                "create",
                { bench, _ in
                    let (entry, handle) = try bench.volume.create(name, in: 1)
                    bench.volume.release(handle)
                    bench.volume.forget(entry.node)
                }
            ),
            (
                "create, write-protected",
                { bench, _ in
                    let (entry, handle) = try bench.volume.create(name, in: 1, mode: 0o444)
                    bench.volume.release(handle)
                    bench.volume.forget(entry.node)
                }
            ),
            (
                "mkdir",
                { bench, _ in bench.volume.forget(try bench.volume.makeDirectory(name, in: 1).node)
                }
            ),
            (
                "symlink",
                { bench, _ in
                    bench.volume.forget(try bench.volume.makeLink(name, in: 1, to: "there").node)
                }
            ),
            (
                "link",
                { bench, _ in
                    bench.volume.forget(
                        try bench.volume.link(bench.node, to: name, in: 1).node)
                }
            ),
            ("rename", { bench, _ in try bench.volume.rename("file", in: 1, to: name, in: 1) }),
            (
                "rename into another class",
                { bench, sub in try bench.volume.rename("file", in: 1, to: name, in: sub) }
            ),
            (
                "lookup",
                { bench, _ in bench.volume.forget(try bench.volume.lookup("file", in: 1).node) }
            ),
            ("list", { bench, _ in _ = try bench.volume.names(in: 1) }),
            ("rmdir", { bench, _ in try bench.volume.removeDirectory("sub", in: 1) }),
            ("unlink", { bench, _ in try bench.volume.unlink("file", in: 1) }),
            ("setxattr", { bench, _ in try bench.volume.setAttribute(bench.node, "user.a", [1]) }),
        ]
    }

    @Test(
        "the n-th call of an operation on names fails: the error, the old or the new names, no descriptor left",
        arguments: ["new", String(repeating: "long", count: 50)], [Errno.noSpace, .ioError])
    func everyCallOnNamesFails(name: String, error: Errno) throws {
        for (label, operation) in CrashErrorTests.operations(name) {
            for call in 0..<60 {
                let bench = try CrashBench()
                let sub = try bench.volume.makeDirectory("sub", in: 1)
                try bench.volume.setClass(sub.node, .complete)
                let place = "\(label), call \(call)"
                let before = bench.disk.openFiles
                bench.disk.fail(.init(after: call, error, hitsLooks: true))
                var thrown: Errno?
                do {
                    try operation(bench, sub.node)
                } catch let error as Errno {
                    thrown = error
                }
                let wasReached = bench.disk.hasFailed
                bench.disk.fail(nil)
                #expect(thrown == nil || thrown == error && wasReached, "\(place)")
                let names = try bench.volume.names(in: 1)
                let inside = names.contains("sub") ? try bench.volume.names(in: sub.node) : []
                #expect(bench.disk.openFiles == before, "\(place)")
                let hasNew = (names + inside).contains(name)
                switch label {
                case "lookup", "list", "setxattr":
                    #expect(names == ["file", "sub"], "\(place)")
                case "rename", "rename into another class":
                    #expect(hasNew != names.contains("file"), "\(place)")
                case "rmdir": #expect(names.contains("sub") == (thrown != nil), "\(place)")
                case "unlink": #expect(names.contains("file") == (thrown != nil), "\(place)")
                case "create", "create, write-protected":
                    #expect(hasNew == (thrown == nil), "\(place)")
                // The new name may exist although a later call of the same operation failed.
                default: #expect(hasNew || thrown != nil, "\(place)")
                }
                #expect(bench.volume.events.problems == [], "\(place)")
                // The operation works when it is repeated without an error.
                if thrown != nil, !hasNew { try operation(bench, sub.node) }
                #expect(
                    try bench.volume.read(bench.handle) == bench.content, "\(place)")
                if !wasReached { break }
                #expect(call < 59, "\(place)")
            }
        }
    }

    @Test(
        "a failed fsync is reported once to each who has the file open, and to nobody who opens it later"
    )
    func syncErrorsAreReportedOnce() throws {
        for dataOnly in [false, true] {
            let bench = try CrashBench()
            let second = try bench.volume.open(bench.node)
            try bench.volume.write(bench.handle, 0, [1, 2, 3])
            bench.disk.fail(.init(after: 0, .ioError))
            #expect(throws: Errno.ioError) {
                try bench.volume.fsync(bench.handle, dataOnly: dataOnly)
            }
            bench.disk.fail(nil)
            let later = try bench.volume.open(bench.node)
            try bench.volume.fsync(bench.handle, dataOnly: dataOnly)
            try bench.volume.fsync(later, dataOnly: dataOnly)
            #expect(throws: Errno.ioError, "the other writer must hear of it, too") {
                try bench.volume.fsync(second, dataOnly: dataOnly)
            }
            try bench.volume.fsync(second, dataOnly: dataOnly)
            for handle in [second, later] { bench.volume.release(handle) }
        }
    }

    @Test("where the sync before a cut failed, the cut waits for the next one")
    func cutAfterAFailedSync() throws {
        for keepsHeader in [false, true] {
            let bench = try CrashBench(pages: 4)
            if keepsHeader { try bench.volume.setAttribute(bench.node, "user.a", [1]) }
            try bench.volume.volume.durablePoint()
            let size = keepsHeader ? 0 : 5000
            // The new last page is written; its sync fails.
            bench.disk.fail(.init(after: 1, .ioError))
            _ = try? bench.volume.setSize(bench.node, bench.handle, size)
            bench.disk.fail(nil)
            try bench.crash([.namesWithoutData, .units], seeds: 12) {
                try bench.volume.write(bench.handle, size, [1, 2, 3])
                bench.volume.release(bench.handle)
                try bench.volume.fsyncDirectory(1)
            } _: { volume, place in
                _ = try CrashBench.content(volume)
                #expect(volume.events.problems == [], "\(place), keeps header: \(keepsHeader)")
            }
        }
    }

    @Test("what a failed cut has left stays away, though a stat meets the error before it grows")
    func statAfterAFailedCut() throws {
        let bench = try CrashBench(pages: 4)
        // The new last page is written; no sync succeeds.
        bench.disk.fail(.init(after: 1, .ioError, isPermanent: true))
        #expect(throws: Errno.ioError) {
            try bench.volume.setSize(bench.node, bench.handle, 5000)
        }
        _ = try bench.volume.attributes(bench.node)
        bench.disk.fail(nil)
        let more = [UInt8](repeating: 3, count: 4000)
        try bench.volume.write(bench.handle, 5000, more)
        let left = try CrashVolume(
            bench.keys, on: SimulatedDisk(bench.disk.image.afterPowerCut(.everything, seed: 0)))
        #expect(try CrashBench.content(left) == bench.content.prefix(5000) + more)
        bench.volume.release(bench.handle)
    }

    @Test("where a cut failed, the size hint does not cut a page in two")
    func hintAfterAFailedCut() throws {
        let bench = try CrashBench(pageBytes: 512, pages: 4)
        // The new last page is written; its sync fails.
        bench.disk.fail(.init(after: 1, .ioError))
        #expect(throws: Errno.ioError) {
            try bench.volume.setSize(bench.node, bench.handle, 100)
        }
        bench.disk.fail(nil)
        try bench.crash([.dataWithoutNames, .units]) {
            bench.volume.release(bench.handle)
        } _: { volume, place in
            let found = try CrashBench.content(volume)
            #expect([100, bench.content.count].contains(found.count), "\(place)")
            #expect(bench.content.starts(with: found.prefix(100)), "\(place)")
            #expect(volume.events.problems == [], "\(place)")
        }
    }

    @Test("a change that was left half-done puts no other file in doubt that is open already")
    func halfDone() throws {
        let bench = try CrashBench(pages: 4)
        let (other, made) = try bench.volume.create("other", in: 1)
        try bench.volume.write(made, 0, bench.content)
        bench.volume.release(made)
        try bench.volume.volume.durablePoint()
        let handle = try bench.volume.open(other.node)
        // The new last page is written; its sync fails.
        bench.disk.fail(.init(after: 1, .ioError))
        #expect(throws: Errno.ioError) {
            try bench.volume.setSize(bench.node, bench.handle, 10)
        }
        bench.disk.fail(nil)
        #expect(bench.volume.volume.isInDoubt)
        try bench.volume.volume.durablePoint()
        try bench.volume.write(handle, 0, bench.content)
        bench.volume.release(handle)
        bench.volume.release(bench.handle)
        try bench.volume.volume.close()
        let image = SimulatedDisk(bench.disk.image)
        #expect(
            image.tamper(other.attributes.inode) { bytes in
                for index in 4096..<8192 { bytes[index] = 0 }
                return true
            })
        let volume = try CrashVolume(bench.keys, on: image)
        #expect(volume.volume.isInDoubt)
        #expect(throws: Errno.ioError) { try CrashBench.content(volume, "other") }
    }

    @Test(
        "mending on a store that fails, at every call, leaves the doubt or nothing to be excused",
        arguments: [Errno.ioError, .noSuchFileOrDirectory, .staleNFSFileHandle])
    func mendingFails(error: Errno) throws {
        let bench = try CrashBench(pages: 6)
        let more = [UInt8](repeating: 3, count: 4 * 4060)
        var tried = 0
        try bench.crash([.units], seeds: 10) {
            try bench.volume.write(bench.handle, bench.content.count, more)
            let (_, handle) = try bench.volume.create("new", in: 1)
            try bench.volume.setAttribute(
                try bench.volume.lookup("new", in: 1).node, "user.a", [1])
            try bench.volume.write(handle, 0, more)
        } _: { volume, place in
            let found = try CrashBench.content(volume)
            guard volume.events.healed > 0, tried < 10 else { return }
            tried += 1
            let image = volume.disk.image
            for call in 0..<400 {
                let disk = SimulatedDisk(image)
                let again = try CrashVolume(bench.keys, on: disk)
                disk.fail(.init(after: call, error, hitsLooks: true))
                again.volume.mendDoubtfulFiles { false }
                let wasReached = disk.hasFailed
                disk.fail(nil)
                try again.volume.close()
                let later = try CrashVolume(bench.keys, on: SimulatedDisk(disk.image))
                #expect(try CrashBench.content(later) == found, "\(place), call \(call)")
                #expect(
                    later.volume.isInDoubt || later.events.healed == 0, "\(place), call \(call)")
                if !wasReached {
                    #expect(!later.volume.isInDoubt, "\(place)")
                    break
                }
            }
        }
        #expect(tried > 0)
    }
}
