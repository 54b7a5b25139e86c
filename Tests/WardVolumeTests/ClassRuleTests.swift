import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

@Suite struct ClassRuleTests {
    @Test func lockedClassAIsRefusedAndComesBack() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let (node, handle) = try harness.create("secret")
        try harness.write(handle, 0, Array("class A".utf8))
        harness.lock()
        #expect(throws: Errno.notPermitted) { try harness.read(handle, 0, 10) }
        #expect(throws: Errno.notPermitted) { try harness.write(handle, 0, [1]) }
        #expect(throws: Errno.notPermitted) { try harness.open(node) }
        #expect(throws: Errno.notPermitted) { try harness.create("new") }
        #expect(try harness.names() == ["secret"])
        #expect(try harness.size(node) == 7)
        #expect(try harness.classOf(node) == "NSFileProtectionComplete")
        try harness.unlock()
        #expect(try harness.read(handle, 0, 10) == Array("class A".utf8))
        harness.volume.release(handle, harness.context)
    }

    @Test func classBIsCreatedAndKeptOpenWhileLocked() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let (_, before) = try harness.create("before")
        try harness.write(before, 0, [1, 2, 3])
        harness.lock()
        try harness.write(before, 3, [4])
        #expect(try harness.read(before, 0, 10) == [1, 2, 3, 4])
        let (node, made) = try harness.create("during")
        try harness.write(made, 0, Array("logged".utf8))
        #expect(try harness.read(made, 0, 10) == Array("logged".utf8))
        #expect(throws: Errno.notPermitted) { try harness.open(node) }
        harness.volume.release(made, harness.context)
        #expect(throws: Errno.notPermitted) { try harness.open(node) }
        try harness.unlock()
        let again = try harness.open(node)
        #expect(try harness.read(again, 0, 10) == Array("logged".utf8))
        for handle in [before, again] { harness.volume.release(handle, harness.context) }
    }

    @Test func classBDescriptorFromBeforeARebootWorksThroughTheNextLock() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let (_, handle) = try harness.create("log")
        try harness.write(handle, 0, [1, 2, 3])
        _ = harness.volume.evict([.a, .b, .c, .cx], keepOpenFiles: [], deadline: .seconds(5))
        #expect(throws: Errno.notPermitted) { try harness.read(handle, 0, 3) }
        try harness.unlock()
        harness.lock()
        #expect(try harness.read(handle, 0, 3) == [1, 2, 3])
        harness.volume.release(handle, harness.context)
    }

    /// The same, while a request holds the file when the lock comes.
    @Test func classBDescriptorInUseAtTheLockWorksAfterwards() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let (node, handle) = try harness.create("log")
        try harness.write(handle, 0, [1, 2, 3])
        _ = harness.volume.evict([.a, .b, .c, .cx], keepOpenFiles: [], deadline: .seconds(5))
        try harness.unlock()
        let file = try #require(harness.volume.node(node).file)
        let isHeld = Atomic<Bool>(false)
        let request = try SystemThread("request") {
            file.lock.withWriteLock {
                isHeld.store(true, ordering: .releasing)
                // The time that a request takes.
                usleep(3000)
            }
        }
        let hasBegun = comesTrue { isHeld.load(ordering: .acquiring) }
        #expect(hasBegun, "the request holds the file")
        harness.lock()
        request.join()
        #expect(try harness.read(handle, 0, 3) == [1, 2, 3])
        harness.volume.release(handle, harness.context)
    }

    /// The lock comes after an open was allowed and before its answer was sent.
    @Test func classBFileThatIsBeingOpenedKeepsItsKey() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let (node, first) = try harness.create("log")
        try harness.write(first, 0, [1, 2, 3])
        let file = try #require(harness.volume.node(node).file)
        let second = try harness.open(node)
        #expect(file.uses.kernelHandles.load(ordering: .relaxed) == 2)
        harness.volume.release(first, harness.context)
        harness.lock()
        #expect(try harness.read(second, 0, 3) == [1, 2, 3])
        // A refused open is not counted and takes no key away.
        #expect(throws: Errno.notPermitted) { try harness.open(node) }
        #expect(file.uses.kernelHandles.load(ordering: .relaxed) == 1)
        #expect(try harness.read(second, 0, 3) == [1, 2, 3])
        harness.volume.release(second, harness.context)
        #expect(!file.hasKey)
    }

    @Test func changingTheClassKeepsContentAndTimes() throws {
        let harness = try VolumeHarness()
        let (node, handle) = try harness.create("file")
        let data = (0..<20_000).map { UInt8(truncatingIfNeeded: $0) }
        try harness.write(handle, 0, data)
        let before = try harness.volume.attributes(
            of: node, handle: nil, caller: harness.caller, harness.context)
        for spelling in ["A", "B", "CX", "C", "NSFileProtectionNone", "complete"] {
            try harness.setClass(node, spelling)
            #expect(try harness.read(handle, 0, 30_000) == data)
        }
        let after = try harness.volume.attributes(
            of: node, handle: nil, caller: harness.caller, harness.context)
        #expect(after.modification.tv_nsec == before.modification.tv_nsec)
        harness.volume.release(handle, harness.context)
        try harness.reopen()
        let found = try harness.lookup("file").node
        #expect(try harness.classOf(found) == "NSFileProtectionComplete")
        let again = try harness.open(found)
        #expect(try harness.read(again, 0, 30_000) == data)
        harness.volume.release(again, harness.context)
        #expect(throws: Errno.invalidArgument) { try harness.setClass(found, "secret") }
    }

    @Test func emptyFilesKeepTheirClassWhenTheirDirectoryChanges() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        let (node, handle) = try harness.create("empty")
        harness.volume.release(handle, harness.context)
        harness.volume.forget(node, lookups: 1)
        try harness.setClass(1, "A")
        try harness.reopen()
        #expect(
            try harness.classOf(harness.lookup("empty").node)
                == "NSFileProtectionCompleteUntilFirstUserAuthentication")
        #expect(try harness.size(harness.lookup("empty").node) == 0)
        let (new, made) = try harness.create("new")
        #expect(try harness.classOf(new) == "NSFileProtectionComplete")
        harness.volume.release(made, harness.context)
    }
}
