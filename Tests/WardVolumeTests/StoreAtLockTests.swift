import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

/// Row L2: backing stores that hang, fail or are full while a class is closing neither hold up a
/// lock nor lose anything silently.
@Suite struct StoreAtLockTests {
    /// A file of class A with mapped pages that differ from what is stored.
    private struct Mapped {
        let harness: VolumeHarness
        let storage: FailingStorage
        let kernel: FakeKernel
        let node: NodeID
        let handle: HandleID
        let old: [UInt8]
        let new: [UInt8]

        init(pageBytes: Int = 4096, size: Int = 300_000) throws {
            storage = FailingStorage()
            harness = try VolumeHarness(
                pageBytes: pageBytes, defaultClass: .complete, storage: storage)
            (node, handle) = try harness.create("mapped")
            old = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) }
            new = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 11 &+ 3) }
            try harness.write(handle, 0, old)
            kernel = FakeKernel(harness)
            kernel.store(node, handle, 0, new)
        }

        /// Starts a program's write of `count` bytes 0xEE on its own thread. The semaphore signals
        /// its end.
        func beginWrite(_ count: Int, at offsetBytes: UInt64) -> DispatchSemaphore {
            let (volume, handle, caller) = (harness.volume, self.handle, harness.caller)
            let isWritten = DispatchSemaphore(value: 0)
            Thread.detachNewThread {
                let context = WorkerContext(volume: volume)
                [UInt8](repeating: 0xEE, count: count).withUnsafeBytes {
                    try? volume.write(
                        handle, offsetBytes: offsetBytes, $0, flags: [], caller: caller, context)
                }
                context.finishRequest()
                isWritten.signal()
            }
            return isWritten
        }

        /// Starts a write; `hang` is locked, and the write hangs in the store when this returns.
        /// The semaphore signals its end.
        func hangingWrite() -> DispatchSemaphore {
            let isWriting = DispatchSemaphore(value: 0)
            storage.onHang { isWriting.signal() }
            let isWritten = beginWrite(100, at: 0)
            #expect(isWriting.wait(timeout: .now() + 30) == .success, "it comes to the store")
            return isWritten
        }

        /// Locks, on its own thread. Returns how long it took; nil if it does not end within
        /// `seconds`.
        func lock(deadline: Duration, seconds: Double) -> (report: EvictionReport, took: Double)? {
            let volume = harness.volume
            let done = DispatchSemaphore(value: 0)
            nonisolated(unsafe) var report = EvictionReport()
            let start = Date()
            Thread.detachNewThread {
                report = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: deadline)
                done.signal()
            }
            guard done.wait(timeout: .now() + seconds) == .success else { return nil }
            return (report, -start.timeIntervalSinceNow)
        }

        var losses: [String] {
            harness.events.all.compactMap {
                if case .lost(let path, let reason) = $0 { "\(path): \(reason)" } else { nil }
            }
        }
    }

    @Test(
        "L2: a hole that a lock comes upon is all there or refused, whatever change of the store it comes before",
        arguments: [512, 4096], 0..<5)
    func holeIsWhole(pageBytes: Int, lockBefore: Int) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(
            pageBytes: pageBytes, defaultClass: .complete, storage: storage)
        let (_, handle) = try harness.create("file")
        let old = (0..<40_000).map { UInt8(truncatingIfNeeded: $0 &* 7 | 1) }
        try harness.write(handle, 0, old)
        let changes = Atomic(0)
        let volume = harness.volume
        // The first step of a lock, at a moment when no request holds it up.
        storage.onChange { _ in
            if changes.add(1, ordering: .relaxed).oldValue == lockBefore {
                volume.gate.classes.set(.closed, for: .complete)
            }
        }
        let hole = 1001..<30_003
        var isRefused = false
        do throws(Errno) {
            try volume.allocate(
                handle, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                offsetBytes: UInt64(hole.lowerBound), lengthBytes: UInt64(hole.count),
                caller: harness.caller, harness.context)
        } catch {
            #expect(error == .notPermitted)
            isRefused = true
        }
        storage.onChange(nil)
        #expect(changes.load(ordering: .relaxed) > lockBefore)
        #expect(throws: Errno.notPermitted) {
            try volume.allocate(
                handle, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offsetBytes: 0,
                lengthBytes: 40_000, caller: harness.caller, harness.context)
        }
        volume.gate.classes.set(.open, for: .complete)
        var expected = old
        if !isRefused {
            expected.replaceSubrange(hole, with: repeatElement(0, count: hole.count))
        }
        #expect(try harness.read(handle, 0, old.count) == expected, "\(isRefused)")
        volume.release(handle, harness.context)
    }

    @Test("A lock writes mapped pages back and they are stored", arguments: [512, 4096])
    func storesPages(pageBytes: Int) throws {
        let mapped = try Mapped(pageBytes: pageBytes)
        let outcome = try #require(mapped.lock(deadline: .seconds(20), seconds: 60))
        #expect(!outcome.report.deadlinePassed)
        #expect(outcome.report.pendingStoreBytes == 0, "S4 says that the pages are stored (L1)")
        #expect(mapped.harness.volume.pendingStoreBytes == 0)
        #expect(mapped.kernel.failures.isEmpty && mapped.losses.isEmpty)
        // The state that a daemon killed now would leave.
        try mapped.harness.reopen(clean: false)
        let handle = try mapped.harness.open(try mapped.harness.lookup("mapped").node)
        #expect(try mapped.harness.read(handle, 0, 1 << 20) == mapped.new)
    }

    @Test("A store that hangs: the lock is done, nothing is lost", arguments: [512, 4096])
    func hangingStore(pageBytes: Int) throws {
        let mapped = try Mapped(pageBytes: pageBytes)
        let harness = mapped.harness
        mapped.storage.hang.lock()
        let outcome = mapped.lock(deadline: .seconds(5), seconds: 30)
        let report = outcome?.report
        #expect(
            report?.deadlinePassed == false, "the write-backs are acknowledged without the store")
        #expect((report?.pendingStoreBytes ?? 0) >= mapped.new.count, "and wait in memory")
        #expect(harness.volume.keyring.available.isDisjoint(with: [.a, .b]))
        #expect(mapped.kernel.failures.isEmpty && mapped.losses.isEmpty)

        // An unlock while the store still hangs: reads give the accepted data.
        try harness.unlock()
        #expect(try harness.read(mapped.handle, 0, 1 << 20) == mapped.new)
        // The last close does not lose it, and a new open sees it too.
        harness.volume.release(mapped.handle, harness.context)
        let again = try harness.open(try harness.lookup("mapped").node)
        #expect(try harness.read(again, 0, 1 << 20) == mapped.new)
        #expect(harness.volume.pendingStoreBytes > 0, "the test means a store that hangs")

        mapped.storage.hang.unlock()
        try harness.volume.fsync(again, dataOnly: true, harness.context)
        #expect(harness.volume.pendingStoreBytes == 0, "fsync waits for what was accepted")
        harness.volume.release(again, harness.context)
        try harness.reopen(clean: false)
        let handle = try harness.open(try harness.lookup("mapped").node)
        #expect(try harness.read(handle, 0, 1 << 20) == mapped.new)
    }

    @Test("Changes after an unlock come after what was accepted at the lock")
    func order() throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        mapped.storage.hang.lock()
        #expect(mapped.lock(deadline: .seconds(5), seconds: 30) != nil)
        try harness.unlock()
        let written = mapped.beginWrite(9000, at: 1000)
        #expect(written.wait(timeout: .now() + 0.3) == .timedOut, "it waits for the store")
        mapped.storage.hang.unlock()
        #expect(written.wait(timeout: .now() + 30) == .success)
        var expected = mapped.new
        expected.replaceSubrange(1000..<10_000, with: repeatElement(0xEE, count: 9000))
        try harness.setSize(mapped.node, mapped.handle, 250_000)
        expected.removeLast(expected.count - 250_000)
        #expect(try harness.read(mapped.handle, 0, 1 << 20) == expected)
        harness.volume.release(mapped.handle, harness.context)
        try harness.reopen(clean: false)
        let again = try harness.open(try harness.lookup("mapped").node)
        #expect(try harness.read(again, 0, 1 << 20) == expected)
    }

    @Test(
        "A store that fails or is full: the lock is done, the event names the file, fsync tells",
        arguments: [Errno.noSpace, .ioError])
    func failingStore(error: Errno) throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        mapped.storage.failAlways(error)
        let outcome = mapped.lock(deadline: .seconds(5), seconds: 30)
        #expect(outcome?.report.deadlinePassed == false)
        #expect(harness.volume.pendingStoreBytes == 0)
        #expect(harness.volume.keyring.available.isDisjoint(with: [.a, .b]))
        #expect(mapped.losses.count == 1 && mapped.losses[0].hasPrefix("/mapped: "))
        #expect(harness.volume.losses.map(\.path) == ["/mapped"])
        mapped.storage.stop()
        try harness.unlock()
        #expect(throws: error, "a sync tells what could not be stored") {
            try harness.volume.fsync(mapped.handle, dataOnly: true, harness.context)
        }
        // Each page is the old or the new one.
        let now = try harness.read(mapped.handle, 0, 1 << 20)
        #expect(zip(now, zip(mapped.old, mapped.new)).allSatisfy { $0 == $1.0 || $0 == $1.1 })
        try harness.write(mapped.handle, 0, mapped.new)
        #expect(try harness.read(mapped.handle, 0, 1 << 20) == mapped.new)
    }

    @Test("One page that fails costs that page alone")
    func onePageFails() throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        // The store is held back until everything is accepted, so that pages are stored in runs.
        // One run fails; then its pages are stored one by one.
        mapped.storage.hang.lock()
        #expect(mapped.lock(deadline: .seconds(3), seconds: 30) != nil)
        mapped.storage.failAfter(0, .ioError)
        mapped.storage.hang.unlock()
        try harness.unlock()
        #expect(comesTrue { harness.volume.pendingStoreBytes == 0 }, "all pages are stored")
        #expect(mapped.storage.hasFailed)
        #expect(mapped.losses.isEmpty, "stored page by page, every page fits: \(mapped.losses)")
        #expect(try harness.read(mapped.handle, 0, 1 << 20) == mapped.new)
    }

    @Test("More than there is memory for: the deadline rules, and what is lost is named")
    func boundedMemory() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .complete, storage: storage)
        let (node, handle) = try harness.create("large")
        try harness.write(handle, 0, [UInt8](repeating: 1, count: 1 << 20))
        let pending = PendingStores(pageBytes: 4096, maximumBytes: 40_960)
        let file = handle.object(as: FileHandle.self).file
        let page = [UInt8](repeating: 9, count: 4096)
        for number in 0..<10 {
            _ = try page.withUnsafeBytes { bytes throws(Errno) in
                try pending.add(file, firstPage: number, count: 1, bytes.baseAddress!, epoch: 1)
            }
        }
        #expect(pending.bytes == 40_960)
        pending.refuse(true)
        #expect(throws: Errno(rawValue: ETIMEDOUT)) {
            _ = try page.withUnsafeBytes {
                try pending.add(file, firstPage: 11, count: 1, $0.baseAddress!, epoch: 1)
            }
        }
        #expect(pending.holdsPages(before: 2) && !pending.holdsPages(before: 1))
        let buffer = UnsafeMutableRawPointer.allocate(
            byteCount: PendingStores.runBytes, alignment: 4096)
        defer { buffer.deallocate() }
        let run = try #require(pending.nextRun(to: buffer))
        #expect(run.firstPage == 0 && run.pageCount == 10)
        let isLast = pending.finish(run)
        #expect(isLast && pending.bytes == 0)
        #expect(pending.nextRun(to: buffer) == nil)
        #expect(file.pendingPages.count.load(ordering: .relaxed) == 0)
        _ = node
    }

    @Test("A write-back that waits for room goes on when a run is stored; a refusal ends its wait")
    func waitForRoom() throws {
        let harness = try VolumeHarness(defaultClass: .complete, storage: FailingStorage())
        let (node, handle) = try harness.create("large")
        let pending = PendingStores(pageBytes: 4096, maximumBytes: 4096)
        let file = handle.object(as: FileHandle.self).file
        let page = [UInt8](repeating: 9, count: 4096)
        let add: @Sendable (Int) throws -> Void = { number in
            _ = try page.withUnsafeBytes {
                try pending.add(file, firstPage: number, count: 1, $0.baseAddress!, epoch: 1)
            }
        }
        try add(0)
        let goesOn = try SystemThread("test") { #expect(throws: Never.self) { try add(1) } }
        let buffer = UnsafeMutableRawPointer.allocate(
            byteCount: PendingStores.runBytes, alignment: 4096)
        defer { buffer.deallocate() }
        _ = pending.finish(try #require(pending.nextRun(to: buffer)))
        goesOn.join()
        #expect(pending.bytes == 4096)
        let fails = try SystemThread("test") {
            #expect(throws: Errno(rawValue: ETIMEDOUT)) { try add(2) }
        }
        pending.refuse(true)
        fails.join()
        _ = pending.finish(try #require(pending.nextRun(to: buffer)))
        #expect(pending.wait(until: .zero))
        _ = node
    }

    @Test(
        "A write-back that never ends: the keys go, the file is named, and the late eviction touches nothing"
    )
    func lateEviction() throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        // A program's write to the same file hangs in the store, and the write-backs wait behind
        // it.
        mapped.storage.hang.lock()
        let volume = harness.volume
        let written = mapped.hangingWrite()
        let outcome = mapped.lock(deadline: .milliseconds(500), seconds: 20)
        #expect(outcome?.report.deadlinePassed == true)
        #expect(volume.keyring.available.isDisjoint(with: [.a, .b]))
        #expect(comesTrue(within: 30) { !mapped.losses.isEmpty }, "a loss is told")
        #expect(mapped.losses.contains { $0.hasPrefix("/mapped: ") }, "\(mapped.losses)")
        mapped.storage.hang.unlock()
        #expect(written.wait(timeout: .now() + 30) == .success)
    }

    @Test("An eviction that an unlock has overtaken touches neither gate nor keys")
    func overtaken() throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        let volume = harness.volume
        mapped.storage.hang.lock()
        _ = mapped.hangingWrite()
        let late = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(2))
            late.signal()
        }
        // Waits until the eviction has begun; it then waits for the write.
        #expect(
            comesTrue(within: 30) { volume.gate.classes.state(of: .complete) != .open },
            "the eviction begins")
        // The lock thread gives the eviction up; then the user unlocks again.
        volume.abandonEviction(of: [.a, .b], keepOpenFiles: [.b])
        #expect(
            volume.keyring.available.isDisjoint(with: [.a, .b]), "given up, but the keys are gone")
        #expect(volume.gate.classes.state(of: .complete) == .closed)
        try harness.unlock()
        #expect(late.wait(timeout: .now() + 20) == .success)
        #expect(
            volume.keyring.available.isSuperset(of: [.a, .b]), "the late eviction took the keys")
        #expect(volume.gate.classes.state(of: .complete) == .open)
        mapped.storage.hang.unlock()
        #expect(
            comesTrue(within: 30) { (try? harness.read(mapped.handle, 0, 10)) != nil },
            "the file can be read again")
        #expect(try harness.read(mapped.handle, 0, 10).count == 10)
    }

    @Test("An eviction that starts after the unlock that followed it touches neither gate nor keys")
    func lateStart() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        let volume = harness.volume
        let late = volume.beginEviction(
            of: [.a, .b], keepOpenFiles: [.b], deadline: .seconds(5))
        volume.abandonEviction(of: [.a, .b], keepOpenFiles: [.b])
        try harness.unlock()
        _ = late.run()
        #expect(volume.keyring.available.isSuperset(of: [.a, .b]))
        #expect(volume.gate.classes.state(of: .complete) == .open)
        #expect(try harness.read(handle, 0, 3) == [1, 2, 3])
        volume.release(handle, harness.context)
    }

    @Test("A hole that a lock has stored into is data, although the store does not have it yet")
    func seekFindsWhatIsAccepted() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .complete, storage: storage)
        let (node, handle) = try harness.create("sparse")
        try harness.setSize(node, handle, 1 << 20)
        let kernel = FakeKernel(harness)
        kernel.store(node, handle, 500_000, [UInt8](repeating: 7, count: 4096))
        storage.hang.lock()
        let volume = harness.volume
        let locked = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(3))
            locked.signal()
        }
        #expect(locked.wait(timeout: .now() + 30) == .success)
        try harness.unlock()
        #expect(volume.pendingStoreBytes > 0, "the test means a store that hangs")
        let found = Mutex<UInt64?>(nil)
        let done = DispatchSemaphore(value: 0)
        let caller = harness.caller
        Thread.detachNewThread {
            let context = WorkerContext(volume: volume)
            let data = try? volume.seek(
                handle, offsetBytes: 10_000, whence: 3 /* SEEK_DATA */, caller: caller, context)
            found.withLock { $0 = data }
            done.signal()
        }
        #expect(done.wait(timeout: .now() + 0.3) == .timedOut, "it waits for the store")
        storage.hang.unlock()
        #expect(done.wait(timeout: .now() + 30) == .success)
        let data = try #require(found.withLock { $0 })
        #expect(data <= 500_000, "a copy that skips holes would lose what was stored: \(data)")
        harness.volume.release(handle, harness.context)
    }

    @Test(
        "Write-backs that the kernel sends after an invalidation are served (kernels before 6.16)")
    func lateWriteBacks() throws {
        let mapped = try Mapped()
        mapped.kernel.sendsLate()
        let outcome = try #require(mapped.lock(deadline: .seconds(20), seconds: 60))
        #expect(!outcome.report.deadlinePassed)
        #expect(mapped.kernel.failures.isEmpty && mapped.losses.isEmpty, "\(mapped.losses)")
        try mapped.harness.reopen(clean: false)
        let handle = try mapped.harness.open(try mapped.harness.lookup("mapped").node)
        #expect(try mapped.harness.read(handle, 0, 1 << 20) == mapped.new)
    }

    @Test("Threads that hold content when a lock is given up are wiped")
    func abandonedThreads() throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        _ = try harness.read(mapped.handle, 0, 4096)
        #expect(harness.context.holdsSecrets)
        harness.volume.abandonEviction(of: [.a, .b], keepOpenFiles: [.b])
        harness.volume.wipeThreads(patience: .seconds(1))
        #expect(!harness.context.holdsSecrets)
    }

    @Test("A durable point does not cover what is still on its way to the store")
    func durablePoint() throws {
        let mapped = try Mapped()
        let harness = mapped.harness
        let volume = harness.volume
        mapped.storage.hang.lock()
        #expect(mapped.lock(deadline: .seconds(3), seconds: 30) != nil)
        let recorded = volume.durability.recordedEpoch
        let durable = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            try? volume.durablePoint()
            durable.signal()
        }
        #expect(durable.wait(timeout: .now() + 0.5) == .timedOut)
        #expect(volume.durability.recordedEpoch == recorded)
        mapped.storage.hang.unlock()
        #expect(durable.wait(timeout: .now() + 20) == .success)
        #expect(volume.durability.recordedEpoch == recorded + 1)
        #expect(volume.unsyncedBytes == 0)
    }

    @Test(
        "A lock between the two steps of a write beyond the end leaves the file as it was",
        arguments: [512, 4096])
    func lockInsideAWrite(pageBytes: Int) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(
            pageBytes: pageBytes, defaultClass: .complete, storage: storage)
        for (name, size, offset) in [
            ("empty", 0, 50_000), ("short", 100, 3000), ("long", 20_000, 900_000),
            ("next", pageBytes - 40, pageBytes + 100),
        ] {
            let (node, handle) = try harness.create(name)
            let old = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ 1) }
            try harness.write(handle, 0, old)
            let volume = harness.volume
            // The gate closes just after the file has grown.
            let hasGrown = Flag()
            storage.onChange { change in
                if change == "pwrite" { hasGrown.isSet = true }
                if hasGrown.isSet { volume.gate.classes.set(.closing, for: .complete) }
            }
            #expect(throws: Errno.notPermitted, "\(name)") {
                try harness.write(handle, offset, [1, 2, 3])
            }
            storage.onChange(nil)
            #expect(hasGrown.isSet, "\(name): the test means a write that was under way")
            volume.gate.classes.set(.open, for: .complete)
            #expect(try harness.size(node) == size, "\(name)")
            #expect(try harness.read(handle, 0, 1 << 20) == old, "\(name)")
            harness.volume.release(handle, harness.context)
        }
        try harness.reopen()
        for (name, size) in [("empty", 0), ("short", 100), ("long", 20_000)] {
            #expect(try harness.size(try harness.lookup(name).node) == size, "\(name)")
        }
        #expect(harness.events.integrityFailures.isEmpty)
    }

    private final class Flag: @unchecked Sendable {
        // Sendable: the volume calls from the test's own thread.
        var isSet = false
    }
}
