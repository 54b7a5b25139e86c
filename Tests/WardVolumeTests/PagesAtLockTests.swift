import Foundation
import Glibc
import Synchronization
import Testing
import WardFormat
import WardKeys
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

/// Pages that the kernel may still have after a lock (row L1), and that the volume must make it
/// drop. Both faults were found by `make soak`.
@Suite struct PagesAtLockTests {
    @Test("Row O4: at a reboot no page of class B can be filled once the last were dropped")
    func rebootLeavesNoRoomForReads() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let (_, log) = try harness.create("log")
        try harness.write(log, 0, [1, 2, 3])
        let (node, plain) = try harness.create("plain")
        try harness.setClass(node, "D")
        try harness.write(plain, 0, [4])
        // A request that holds up the wiping: it is answered, but not finished, when pages are
        // dropped for the last time.
        let (begins, isAnswered, mayFinish) = (
            DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
        )
        let (volume, caller) = (harness.volume, harness.caller)
        Thread.detachNewThread {
            let slow = WorkerContext(volume: volume)
            begins.wait()
            _ = try? volume.read(plain, offsetBytes: 0, count: 1, caller: caller, slow)
            isAnswered.signal()
            mayFinish.wait()
            slow.finishRequest()
        }
        let kernel = RecordingKernel { round in
            guard round == 2 else { return }
            begins.signal()
            isAnswered.wait()
        }
        harness.volume.setNotifier(kernel)
        let done = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            _ = volume.evict([.a, .b, .c, .cx], keepOpenFiles: [], deadline: .seconds(5))
            done.signal()
        }
        #expect(
            comesTrue {
                kernel.rounds >= 2 && volume.gate.classes.state(of: .completeUnlessOpen) != .closing
            }, "pages are dropped twice, and class B is closed")
        #expect(throws: Errno.notPermitted) { try harness.read(log, 0, 3) }
        mayFinish.signal()
        #expect(done.wait(timeout: .now() + 30) == .success)
        #expect(throws: Errno.notPermitted) { try harness.read(log, 0, 3) }
        let (_, made) = try harness.create("made before the first unlock")
        try harness.write(made, 0, [5])
        #expect(try harness.read(made, 0, 1) == [5])
        for handle in [log, plain, made] { harness.volume.release(handle, harness.context) }
    }

    @Test("Row O5: what a refused write put into the kernel's pages is dropped")
    func refusedWriteLeavesNoPage() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        let kernel = RecordingKernel { _ in }
        harness.volume.setNotifier(kernel)
        harness.lock()
        let before = kernel.rounds
        #expect(throws: Errno.notPermitted) { try harness.write(handle, 0, [9]) }
        harness.volume.background.drain()
        #expect(kernel.rounds == before + 1)
        try harness.unlock()
        try harness.write(handle, 0, [4])
        harness.volume.background.drain()
        #expect(kernel.rounds == before + 1, "a write that was accepted drops nothing")
        harness.volume.release(handle, harness.context)
    }

    @Test(
        "Row L2: a class is opened when no pages are being dropped, so that no read gets ahead of a write"
    )
    func openingAfterDrops() {
        let drops = PageDrops(patience: .seconds(60), settling: .zero)
        #expect(drops.announce(for: .complete))
        let isOpen = Atomic<Bool>(false)
        let done = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            drops.open([.a, .b]) { isOpen.store(true, ordering: .sequentiallyConsistent) }
            done.signal()
        }
        // Repeats until the class is about to open; an announcement before that is taken back.
        let isOpening = comesTrue {
            guard drops.announce(for: .complete) else { return true }
            drops.perform({ false }, {})
            return false
        }
        #expect(isOpening, "the class is about to open")
        #expect(!drops.announce(for: .complete) && !drops.announce(for: .completeUnlessOpen))
        #expect(drops.announce(for: .completeUntilFirstUserAuthentication), "of another class")
        drops.perform({ true }, {})
        let wasOpen = isOpen.load(ordering: .sequentiallyConsistent)
        #expect(!wasOpen, "while one is under way")
        drops.perform({ true }, {})
        #expect(done.wait(timeout: .now() + 30) == .success)
        #expect(isOpen.load(ordering: .sequentiallyConsistent) == true)
        #expect(drops.announce(for: .complete), "until the next lock")
    }

    @Test("Row L2: writes from before the last drop get a moment to arrive, where there was one")
    func settlingTime() {
        let sleeps = Atomic<Int>(0)
        let drops = PageDrops(
            settling: .seconds(60), sleep: { _ in sleeps.add(1, ordering: .relaxed) })
        drops.open([.a]) {}
        #expect(sleeps.load(ordering: .relaxed) == 0, "nothing was dropped")
        #expect(drops.announce(for: .complete))
        drops.perform({ false }) { Issue.record("the class was open") }
        drops.open([.a]) {}
        #expect(sleeps.load(ordering: .relaxed) == 0, "nothing was dropped in the end")
        #expect(drops.announce(for: .complete))
        var hasDropped = false
        drops.perform({ true }) { hasDropped = true }
        #expect(hasDropped)
        drops.open([.a]) { #expect(sleeps.load(ordering: .relaxed) == 1, "before it is open") }
    }

    @Test(
        "Rows L1, L2: what an eviction has not dropped when its class is opened again stays until the next one"
    )
    func noDropOnceOpen() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let files = try (0..<6).map { number in
            let (node, handle) = try harness.create("file \(number)")
            try harness.write(handle, 0, [1, 2, 3])
            return (node: node, handle: handle)
        }
        let volume = harness.volume
        // Pages of files that no program has open stay in the kernel's cache.
        for file in files[3...] { volume.release(file.handle, harness.context) }
        let mayEnd = DispatchSemaphore(value: 0)
        let isDropping = DispatchSemaphore(value: 0)
        let kernel = BlockingKernel {
            isDropping.signal()
            mayEnd.wait()
        }
        volume.setNotifier(kernel)
        let done = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(30))
            done.signal()
        }
        // Each thread is at one file; the other files are left.
        for _ in 0..<Eviction.invalidationThreads { isDropping.wait() }
        // The drops hang: the unlock does not wait for them.
        try harness.unlock()
        for _ in 0..<Eviction.invalidationThreads { mayEnd.signal() }
        #expect(done.wait(timeout: .now() + 30) == .success)
        #expect(kernel.dropped.count == Eviction.invalidationThreads, "none after the unlock")
        for file in files[..<3] { #expect(try harness.read(file.handle, 0, 3) == [1, 2, 3]) }
        for _ in 0..<100 { mayEnd.signal() }
        harness.lock()
        #expect(kernel.dropped.isSuperset(of: files.map(\.node)), "by the next lock")
        for file in files[..<3] { volume.release(file.handle, harness.context) }
    }

    @Test("Rows I7, L1: a class change that fails after a lock leaves neither key nor pages")
    func failedClassChange() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .complete, storage: storage)
        let (node, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        let kernel = RecordingKernel { _ in }
        harness.volume.setNotifier(kernel)
        // The lock comes while the header is being written; then the write fails.
        let volume = harness.volume
        let hasLocked = Atomic<Bool>(false)
        storage.onChange { change in
            guard change == "pwrite", !hasLocked.exchange(true, ordering: .relaxed) else { return }
            _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(5))
            storage.failAfter(0, .ioError)
        }
        #expect(throws: Errno.ioError) { try harness.setClass(node, "D") }
        storage.onChange(nil)
        #expect(hasLocked.load(ordering: .relaxed) == true)
        #expect(try harness.classOf(node) == "NSFileProtectionComplete")
        volume.background.drain()
        let file = handle.object(as: FileHandle.self).file
        #expect(!file.hasKey, "the key of a locked file")
        #expect(!harness.context.holdsSecrets)
        #expect(kernel.rounds == 1, "the pages of a locked file")
        #expect(throws: Errno.notPermitted) { try harness.read(handle, 0, 3) }
        try harness.unlock()
        #expect(try harness.read(handle, 0, 3) == [1, 2, 3])
        volume.release(handle, harness.context)
    }

    @Test("Row L3: the last close counts, although the daemon itself still has the file open")
    func lastCloseBesideOwnUse() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let (node, handle) = try harness.create("log")
        try harness.write(handle, 0, [1, 2, 3])
        let (_, other) = try harness.create("closed")
        try harness.write(other, 0, [4])
        let kernel = RecordingKernel { _ in }
        let volume = harness.volume
        volume.setNotifier(kernel)
        // Several threads do what reading an attribute does, again and again.
        let own = try volume.acquire(volume.node(node), harness.context).file
        let ownOther = other.object(as: FileHandle.self).file
        _ = try volume.acquire(ownOther.node, harness.context)
        volume.release(other, harness.context)
        #expect(ownOther.hasKey)
        harness.lock()
        #expect(!ownOther.hasKey, "nobody had it open at the lock")
        #expect(own.hasKey)
        let before = kernel.rounds
        volume.release(handle, harness.context)
        volume.background.drain()
        #expect(!own.hasKey && !harness.context.holdsSecrets)
        #expect(kernel.rounds == before + 1, "its pages go too")
        volume.release(own, harness.context)
        volume.release(ownOther, harness.context)
    }

    @Test("Row L1: a lock drops the pages of a file whose own drop at the close has not ended")
    func dropAtCloseUnderWay() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        let volume = harness.volume
        let drops = Atomic<Int>(0)
        let (isDropping, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let kernel = BlockingKernel {
            guard drops.add(1, ordering: .relaxed).oldValue == 0 else { return }
            isDropping.signal()
            mayEnd.wait()
        }
        volume.setNotifier(kernel)
        volume.gate.classes.set(.closing, for: .complete)
        volume.release(handle, harness.context)
        isDropping.wait()
        harness.lock()
        #expect(drops.load(ordering: .relaxed) == 2, "the lock has not waited for the first")
        mayEnd.signal()
        volume.background.drain()
    }

    @Test(
        "A journal's database is not looked into once the gate is closed, though its key is there")
    func databaseBehindTheGate() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let (_, handle) = try harness.create("data.db")
        try harness.write(handle, 0, Array("SQLite format 3\0 and more".utf8))
        let volume = harness.volume
        volume.gate.classes.set(.closed, for: .complete)
        volume.gate.contexts.forEach { _ = $0.drain(wiping: true, patience: .seconds(1)) }
        #expect(throws: Errno.notPermitted) { try harness.create("data.db-wal") }
        #expect(!harness.context.holdsSecrets)
        volume.gate.classes.set(.open, for: .complete)
        volume.release(handle, harness.context)
    }
}

/// Notes invalidations, which may come from several threads, and calls `act` at each.
private final class BlockingKernel: KernelNotifier, Sendable {
    private let nodes = Mutex<Set<NodeID>>([])
    private let act: @Sendable () -> Void

    init(_ act: @escaping @Sendable () -> Void) { self.act = act }

    var dropped: Set<NodeID> { nodes.withLock { $0 } }

    func invalidateContent(of node: NodeID) {
        nodes.withLock { _ = $0.insert(node) }
        act()
    }

    func invalidateAttributes(of node: NodeID) {}
    func invalidateName(_ name: [UInt8], in parent: NodeID) {}
}

/// Counts invalidations, and calls `act` at each.
private final class RecordingKernel: KernelNotifier, @unchecked Sendable {
    // Sendable: only the eviction's thread calls `act`, one call at a time.
    private let count = Atomic<Int>(0)
    private let act: (Int) -> Void

    init(_ act: @escaping (Int) -> Void) { self.act = act }

    var rounds: Int { count.load(ordering: .sequentiallyConsistent) }

    func invalidateContent(of node: NodeID) {
        let round = count.load(ordering: .sequentiallyConsistent) + 1
        act(round)
        count.store(round, ordering: .sequentiallyConsistent)
    }

    func invalidateAttributes(of node: NodeID) {}
    func invalidateName(_ name: [UInt8], in parent: NodeID) {}
}
