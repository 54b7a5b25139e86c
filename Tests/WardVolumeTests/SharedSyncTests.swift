import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardFormat
import WardSimulatedStorage
import WardSystem

import func WardTestSupport.comesTrue
import func WardTestSupport.processState

@testable import WardVolume

/// Several callers share one sync; each of them is told once of a failure (`SyncGroup`).
@Suite struct SharedSyncTests {
    @Test(
        "who comes while a sync is under way waits for one that begins later, with all others, and as full as one of them wants"
    )
    func grouped() throws {
        let group = SyncGroup()
        let syncs = Mutex<[Bool]>([])
        let arrived = Mutex<[pid_t]>([])
        let threads = DispatchGroup()
        try group.sync(isFull: false) { isFull throws(Errno) in
            syncs.withLock { $0.append(isFull) }
            for number in 0..<4 {
                threads.enter()
                Thread.detachNewThread {
                    defer { threads.leave() }
                    arrived.withLock { $0.append(ward_gettid()) }
                    try? group.sync(isFull: number == 2) { isFull throws(Errno) in
                        syncs.withLock { $0.append(isFull) }
                    }
                }
            }
            let areWaiting = comesTrue {
                let arrived = arrived.withLock { $0 }
                return arrived.count == 4 && arrived.allSatisfy { processState($0) == "S" }
            }
            #expect(areWaiting, "the four threads wait for the group")
        }
        threads.wait()
        #expect(syncs.withLock { $0 } == [false, true])
        try group.sync(isFull: false) { isFull throws(Errno) in
            syncs.withLock { $0.append(isFull) }
        }
        #expect(syncs.withLock { $0 } == [false, true, false])
    }

    @Test("two handles sync at once, and the kernel tells one of them of a failure: both are told")
    func bothAreTold() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let volume = harness.volume
        let (node, first) = try harness.create("file")
        let second = try harness.open(node)
        try harness.write(first, 0, [1, 2, 3])
        let told = Mutex<Errno?>(nil)
        let isDone = DispatchSemaphore(value: 0)
        let isFirst = Atomic(true)
        storage.onChange { name in
            guard name == "fsync", isFirst.exchange(false, ordering: .relaxed) else { return }
            Thread.detachNewThread {
                do throws(Errno) {
                    try volume.fsync(second, dataOnly: false, WorkerContext(volume: volume))
                } catch {
                    told.withLock { $0 = error }
                }
                isDone.signal()
            }
            if isDone.wait(timeout: .now() + 0.3) == .success { isDone.signal() }
            storage.failAfter(0, .ioError)
        }
        #expect(throws: Errno.ioError) {
            try volume.fsync(first, dataOnly: false, harness.context)
        }
        isDone.wait()
        storage.onChange(nil)
        storage.stop()
        #expect(told.withLock { $0 } == .ioError)
        try volume.fsync(first, dataOnly: false, harness.context)
        volume.release(first, harness.context)
        volume.release(second, harness.context)
    }

    @Test("a sync that fails within another call is told by the next fsync of each handle")
    func failureOfAnother() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let volume = harness.volume
        let (node, first) = try harness.create("file")
        try harness.write(first, 0, [UInt8](repeating: 1, count: 20_000))
        let second = try harness.open(node)
        storage.onChange { if $0 == "fdatasync" { storage.failAfter(0, .ioError) } }
        #expect(throws: Errno.ioError) { try harness.setSize(node, second, 5000) }
        storage.onChange(nil)
        storage.stop()
        for handle in [first, second] {
            #expect(throws: Errno.ioError) {
                try volume.fsync(handle, dataOnly: true, harness.context)
            }
            try volume.fsync(handle, dataOnly: true, harness.context)
            volume.release(handle, harness.context)
        }
    }

    @Test(
        "a file emptied and written anew, whose first page a failed sync took: never the new key over the old content"
    )
    func anotherKeysPage() throws {
        let bench = try CrashBench(pages: 1)
        let volume = bench.volume
        try volume.setAttribute(bench.node, "user.a", [1])
        try volume.fsync(bench.handle)
        try volume.setSize(bench.node, bench.handle, 0)
        try volume.write(bench.handle, 0, bench.content.map { $0 ^ 2 })
        bench.disk.fail(SimulatedDisk.Faults(after: 0, .ioError))
        #expect(throws: Errno.ioError) { try volume.fsync(bench.handle) }
        bench.disk.fail(nil)
        // The pass drops the pages in memory: the old page is read now.
        volume.volume.mendDoubtfulFiles { false }
        #expect(volume.volume.isInDoubt)
        let failures = volume.volume.durability.syncFailures
        #expect(throws: Errno.ioError) { try volume.fsync(bench.handle) }
        #expect(throws: Errno.ioError) { try volume.setClass(bench.node, .complete) }
        #expect(
            volume.volume.durability.syncFailures == failures,
            "what is refused is no failure of the store")
        volume.release(bench.handle)
        #expect(try CrashBench.content(volume) == bench.content)
        volume.volume.mendDoubtfulFiles { false }
        #expect(!volume.volume.isInDoubt)
        #expect(volume.events.problems.allSatisfy { $0.hasPrefix("lost:") })
    }

    @Test("a header of before, and its file with the key that it has: nothing is refused")
    func earlierHeader() throws {
        let bench = try CrashBench()
        let volume = bench.volume
        try volume.setClass(bench.node, .complete)
        // A weaker class is not synced. The next program that opens the file does not know of the
        // change.
        try volume.setClass(bench.node, .none)
        volume.release(bench.handle)
        let handle = try volume.open(bench.node)
        let (empty, other) = try volume.create("empty", in: 1)
        try volume.setAttribute(empty.node, "user.a", [1])
        bench.disk.fail(SimulatedDisk.Faults(after: 0, .ioError))
        #expect(throws: Errno.ioError) { try volume.volume.durablePoint() }
        bench.disk.fail(nil)
        volume.volume.mendDoubtfulFiles { false }
        #expect(!volume.volume.isInDoubt)
        try volume.fsync(handle)
        try volume.fsync(other)
        try volume.setClass(bench.node, .complete)
        #expect(try volume.read(handle) == bench.content)
        volume.release(handle)
        volume.release(other)
        #expect(try CrashBench.content(volume) == bench.content)
        #expect(volume.events.problems == [])
    }

    @Test(
        "a directory's class whose sync failed is durable when the next call returns",
        arguments: DiskKind.Order.allCases)
    func directoryAgain(order: DiskKind.Order) throws {
        for call in 0..<20 {
            let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
            let directory = try bench.volume.makeDirectory("directory", in: 1)
            try bench.volume.volume.durablePoint()
            bench.disk.fail(SimulatedDisk.Faults(after: call, .ioError))
            try? bench.volume.setClass(directory.node, .complete)
            let wasReached = bench.disk.hasFailed
            bench.disk.fail(nil)
            try bench.volume.setClass(directory.node, .complete)
            let left = try CrashVolume(
                bench.keys,
                on: SimulatedDisk(bench.disk.image.afterPowerCut(.onlyFlushed, seed: 0)))
            let found = try left.lookup("directory", in: 1)
            #expect(try left.classOf(found.node) == .complete, "call \(call)")
            left.forget(found.node)
            bench.volume.release(bench.handle)
            if !wasReached { return }
        }
        Issue.record("there is no end of calls")
    }
}
