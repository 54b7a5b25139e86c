import Testing
import WardFormat
import WardSimulatedStorage
import WardSystem
import WardVolume

/// New directories on backing stores that keep the order of changes, and on others (decision 0052).
@Suite struct CrashRecordTests {
    @Test("A directory whose name is durable has its record, whatever was synced of it")
    func recordFirst() throws {
        for order in DiskKind.Order.allCases {
            let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
            try bench.crash(seeds: 30) {
                let made = try bench.volume.makeDirectory("new", in: 1)
                // Syncs the parent directory, and nothing in the new one.
                try bench.volume.fsyncDirectory(1)
                bench.volume.forget(made.node)
            } _: { volume, place in
                guard let found = try? volume.lookup("new", in: 1) else { return }
                let names = try volume.names(in: found.node)
                #expect(names == [], "\(order) \(place)")
                #expect(volume.events.problems == [], "\(order) \(place)")
                volume.forget(found.node)
            }
        }
    }

    @Test("A store that keeps the order pays nothing for it")
    func cost() throws {
        var calls: [DiskKind.Order: Int] = [:]
        for order in DiskKind.Order.allCases {
            let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
            let before = bench.disk.changes
            bench.volume.forget(try bench.volume.makeDirectory("new", in: 1).node)
            calls[order] = bench.disk.changes - before
        }
        #expect(calls == [.journal: 3, .posix: 4])
    }
}
