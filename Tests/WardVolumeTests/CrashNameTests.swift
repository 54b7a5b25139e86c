import Testing
import WardSimulatedStorage
import WardSystem
import WardVolume

/// `fsync` of a file that has several names, some of which the kernel does not know now.
@Suite struct CrashNameTests {
    /// The volume after a power cut that keeps only what was flushed.
    private func left(_ bench: CrashBench) throws -> CrashVolume {
        try CrashVolume(
            bench.keys, on: SimulatedDisk(bench.disk.image.afterPowerCut(.onlyFlushed, seed: 0)))
    }

    @Test(
        "fsync and fdatasync make a name durable that the kernel forgot, beside the one it knows",
        arguments: DiskKind.Order.allCases, [false, true])
    func forgottenName(order: DiskKind.Order, dataOnly: Bool) throws {
        let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
        let volume = bench.volume
        let directory = try volume.makeDirectory("directory", in: 1)
        try volume.volume.durablePoint()
        let linked = try volume.link(bench.node, to: "second", in: directory.node)
        // The kernel forgets the file, and finds it again by its other name.
        volume.release(bench.handle)
        volume.forget(linked.node, 2)
        let again = try volume.lookup("file", in: 1)
        let handle = try volume.open(again.node)
        try volume.fsync(handle, dataOnly: dataOnly)

        let left = try left(bench)
        let found = try left.lookup("directory", in: 1)
        #expect(try left.names(in: found.node) == ["second"])
        left.forget(found.node)
        // Without new names another fsync costs one change, as usual.
        let before = bench.disk.changes
        try volume.fsync(handle, dataOnly: dataOnly)
        #expect(bench.disk.changes - before == 1)
        volume.release(handle)
    }

    /// Found by seed 1795389281163 of `make crash`.
    @Test(
        "A mkdir that fails leaves no directory; fsync of a file in one that could not be taken back",
        arguments: DiskKind.Order.allCases, [false, true])
    func failedDirectory(order: DiskKind.Order, isPermanent: Bool) throws {
        var seen = 0
        for call in 0..<40 {
            let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
            bench.disk.fail(
                SimulatedDisk.Faults(
                    after: call, .ioError, isPermanent: isPermanent, hitsLooks: true))
            let isMade = (try? bench.volume.makeDirectory("directory", in: 1)) != nil
            let hasFailed = bench.disk.hasFailed
            bench.disk.fail(nil)
            bench.volume.release(bench.handle)
            if !isMade, let directory = try? bench.volume.lookup("directory", in: 1) {
                seen += 1
                let (_, handle) = try bench.volume.create("new", in: directory.node)
                try bench.volume.fsync(handle)
                bench.volume.release(handle)
                let left = try left(bench)
                let found = try left.lookup("directory", in: 1)
                #expect(try left.names(in: found.node) == ["new"], "call \(call)")
                left.forget(found.node)
            }
            if !hasFailed {
                #expect(isPermanent == (seen > 0))
                return
            }
        }
        Issue.record("there is no end of calls")
    }

    @Test(
        "a name made by a rename, and a directory moved above a name, while the kernel does not know that the file has it",
        arguments: DiskKind.Order.allCases)
    func movedName(order: DiskKind.Order) throws {
        let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
        let volume = bench.volume
        let directory = try volume.makeDirectory("directory", in: 1)
        _ = try volume.link(bench.node, to: "second", in: directory.node)
        _ = try volume.link(bench.node, to: "third", in: 1)
        try volume.volume.durablePoint()
        volume.release(bench.handle)
        volume.forget(bench.node, 3)
        // The kernel did not look the file up; only its names and the directories above them
        // change.
        try volume.rename("third", in: 1, to: "moved", in: 1)
        try volume.rename("directory", in: 1, to: "elsewhere", in: 1)
        let again = try volume.lookup("file", in: 1)
        let handle = try volume.open(again.node)
        try volume.fsync(handle)
        volume.release(handle)

        let left = try left(bench)
        #expect(try left.names(in: 1) == ["elsewhere", "file", "moved"])
    }

    @Test("after a sync of the store that failed, names that nobody knows are not believed synced")
    func failedSync() throws {
        let bench = try CrashBench(DiskKind(order: .posix, atomicBytes: 4096))
        let volume = bench.volume
        let directory = try volume.makeDirectory("directory", in: 1)
        let linked = try volume.link(bench.node, to: "second", in: directory.node)
        volume.release(bench.handle)
        volume.forget(linked.node, 2)
        let again = try volume.lookup("file", in: 1)
        let handle = try volume.open(again.node)
        // The file's own sync succeeds; the sync of the whole store fails.
        bench.disk.fail(SimulatedDisk.Faults(after: 1, .ioError))
        #expect(throws: Errno.ioError) { try volume.fsync(handle) }
        bench.disk.fail(nil)
        let before = bench.disk.changes
        try volume.fsync(handle)
        #expect(bench.disk.changes - before > 1)
        volume.release(handle)
    }
}
