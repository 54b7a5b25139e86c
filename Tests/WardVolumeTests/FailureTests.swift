import Foundation
import Synchronization
import Testing
import WardFormat
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

/// The n-th change of the backing store fails, for every n: the program gets the error, and
/// acknowledged data stays.
@Suite struct FailureTests {
    @Test(arguments: [512, 4096], [Errno.noSpace, .ioError])
    func aFailedWriteLeavesWhatWasThere(pageBytes: Int, error: Errno) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(pageBytes: pageBytes, storage: storage)
        let old = (0..<(pageBytes * 2 + 77)).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        for (label, action) in FailureTests.actions(pageBytes) {
            for n in 0..<12 {
                let (node, handle) = try harness.create("\(label)-\(n)")
                try harness.write(handle, 0, old)
                storage.failAfter(n, error)
                let failed = (try? action(harness, node, handle)) == nil
                let wasReached = storage.hasFailed
                storage.stop()
                if failed {
                    // Old bytes up to the old size; a write inside the file may have stored some of
                    // its own.
                    let now = try harness.read(handle, 0, 1 << 20)
                    #expect(now.count >= min(old.count, pageBytes), "\(label), call \(n)")
                    if label == "append" || label == "grow" {
                        #expect(now == old, "\(label), call \(n)")
                    }
                }
                // The next write works.
                try harness.write(handle, 0, old)
                try harness.setSize(node, handle, old.count)
                #expect(try harness.read(handle, 0, 1 << 20) == old, "\(label), call \(n)")
                harness.volume.release(handle, harness.context)
                let again = try harness.open(node)
                #expect(try harness.read(again, 0, 1 << 20) == old, "\(label), call \(n), reopened")
                harness.volume.release(again, harness.context)
                if !wasReached { break }
            }
        }
        #expect(harness.events.integrityFailures.isEmpty)
    }

    private static func actions(
        _ pageBytes: Int
    ) -> [(String, (VolumeHarness, NodeID, HandleID) throws -> Void)] {
        let size = pageBytes * 2 + 77
        let more = [UInt8](repeating: 0xAB, count: pageBytes * 5)
        return [
            ("append", { harness, _, handle in try harness.write(handle, size, more) }),
            (
                "grow",
                { harness, node, handle in try harness.setSize(node, handle, pageBytes * 30) }
            ),
            (
                "shrink",
                { harness, node, handle in try harness.setSize(node, handle, pageBytes + 5) }
            ),
            ("overwrite", { harness, _, handle in try harness.write(handle, 100, more) }),
            ("class", { harness, node, _ in try harness.setClass(node, "A") }),
        ]
    }

    @Test func everyFailedNameOperationLeavesTheOldOrTheNewNames() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let long = String(repeating: "n", count: 240)
        for n in 0..<12 {
            let (_, handle) = try harness.create("file")
            harness.volume.release(handle, harness.context)
            storage.failAfter(n, .ioError)
            let moved: Void? = try? harness.withName("file") { old throws(Errno) in
                try harness.withName(long) { new throws(Errno) in
                    try harness.volume.rename(
                        1, old, 1, new, flags: 0, caller: harness.caller, harness.context)
                }
            }
            let made: Void? = try? harness.withName("dir") { name throws(Errno) in
                _ = try harness.volume.makeDirectory(
                    1, name, mode: 0o755, umask: 0, caller: harness.caller, harness.context)
            }
            storage.stop()
            let names = try harness.names()
            #expect(names.contains(moved == nil ? "file" : long), "call \(n): \(names)")
            #expect(names.contains("dir") == (made != nil), "call \(n): \(names)")
            for name in names {
                try harness.withName(name) { bytes throws(Errno) in
                    if name == "dir" {
                        try harness.volume.removeDirectory(1, bytes, harness.context)
                    } else {
                        try harness.volume.unlink(
                            1, bytes, caller: harness.caller, harness.context)
                    }
                }
            }
        }
        #expect(try harness.names().isEmpty)
    }

    @Test(
        "A pass over doubtful files that could not look at one leaves the doubt",
        arguments: [
            Errno(rawValue: EMFILE), Errno(rawValue: ENOMEM), Errno(rawValue: ETIMEDOUT),
            .noSuchFileOrDirectory, .staleNFSFileHandle,
        ])
    func doubtStays(error: Errno) throws {
        let harness = try VolumeHarness()
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        harness.volume.release(handle, harness.context)
        let storage = FailingStorage()
        try harness.reopen(clean: false, storage: storage)
        #expect(harness.volume.isInDoubt == true)
        storage.failOpening(error)
        harness.volume.mendDoubtfulFiles { false }
        #expect(
            harness.volume.isInDoubt == true,
            "what a power cut left in that file would be refused from now on")
        storage.failOpening(nil)
        harness.volume.mendDoubtfulFiles { false }
        #expect(harness.volume.isInDoubt == false)
    }

    @Test("A change that is left half-done while doubtful files are mended stays in doubt")
    func halfDoneWhileMending() throws {
        let harness = try VolumeHarness()
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        let file = handle.object(as: WardVolume.FileHandle.self).file
        harness.volume.noteHalfDone(file)
        harness.volume.mendDoubtfulFiles {
            harness.volume.noteHalfDone(file)
            return false
        }
        #expect(harness.volume.isInDoubt, "it may be half-done since it was mended")
        harness.volume.mendDoubtfulFiles { false }
        #expect(!harness.volume.isInDoubt)
        harness.volume.release(handle, harness.context)
    }

    @Test("A damaged file with a hole of a terabyte does not hold up a pass over doubtful files")
    func damagedSparseFile() throws {
        let harness = try VolumeHarness()
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        harness.volume.release(handle, harness.context)
        let inode = try harness.lookup("file").attributes.inode
        let name = try #require(
            FileManager.default.contentsOfDirectory(atPath: harness.directory).first {
                var status = stat()
                stat(harness.directory + "/" + $0, &status)
                return status.st_ino == inode
            })
        let backing = try Syscall.openat(
            AT_FDCWD, harness.directory + "/" + name, O_RDWR | O_NOFOLLOW)
        let other: [UInt8] = [7, 7, 7, 7]
        #expect(pwrite(backing, other, other.count, 20) == other.count)
        #expect(ftruncate(backing, 1 << 40) == 0)
        Syscall.close(backing)
        let storage = FailingStorage()
        try harness.reopen(clean: false, storage: storage)
        storage.failCall(10_000, .ioError, andLater: true)
        harness.volume.mendDoubtfulFiles { false }
        storage.stop()
        #expect(!harness.volume.isInDoubt)
    }

    @Test("A durable point that waits for a write that hangs does not hold up a lock")
    func hangingWrite() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .complete, storage: storage)
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        let volume = harness.volume
        let caller = harness.caller

        storage.hang.lock()
        let (isWriting, written) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        storage.onHang { isWriting.signal() }
        Thread.detachNewThread {
            let context = WorkerContext(volume: volume)
            let bytes: [UInt8] = [4, 5, 6]
            bytes.withUnsafeBytes {
                _ = try? volume.write(
                    handle, offsetBytes: 3, $0, flags: [], caller: caller, context)
            }
            context.finishRequest()
            written.signal()
        }
        #expect(isWriting.wait(timeout: .now() + 30) == .success, "the write comes to the store")
        let epoch = volume.durability.epoch.load(ordering: .sequentiallyConsistent)
        let durable = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            try? volume.durablePoint()
            durable.signal()
        }
        let hasBegun = comesTrue {
            volume.durability.epoch.load(ordering: .sequentiallyConsistent) != epoch
        }
        #expect(hasBegun, "the durable point begins, and waits for the write")
        let evicted = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            _ = volume.evict([.a, .b], keepOpenFiles: [.b], deadline: .seconds(1))
            evicted.signal()
        }
        let isInTime = evicted.wait(timeout: .now() + 4) == .success
        #expect(isInTime, "the eviction waits for the disk")
        #expect(volume.keyring.available.isDisjoint(with: [.a, .b]))

        storage.hang.unlock()
        #expect(written.wait(timeout: .now() + 10) == .success)
        #expect(durable.wait(timeout: .now() + 10) == .success)
        if !isInTime { evicted.wait() }
    }

    @Test("a sync of a store that gave up is an error, though the kernel may say that it succeeded")
    func abortedStore() throws {
        let storage = AbortingStorage()
        let harness = try VolumeHarness(storage: storage)
        try harness.volume.durablePoint()
        let (_, handle) = try harness.create("f")
        try harness.write(handle, 0, [1])
        storage.hasGivenUp.store(true, ordering: .relaxed)
        #expect(throws: Errno.readOnlyFileSystem) { try harness.volume.durablePoint() }
        #expect(harness.volume.hasUnsyncedChanges)
        harness.volume.release(handle, harness.context)
    }
}

/// Behaves as ext4 does after its journal failed.
private final class AbortingStorage: PosixStorage, @unchecked Sendable {
    // Sendable: the added state is atomic.
    let hasGivenUp = Atomic(false)

    override func fsync(_ descriptor: Int32) throws(Errno) {
        if hasGivenUp.load(ordering: .relaxed) { throw .readOnlyFileSystem }
        try super.fsync(descriptor)
    }
}
