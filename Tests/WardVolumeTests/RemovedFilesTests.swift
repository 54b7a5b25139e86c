import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

/// A thread of its own frees removed files (decision 0072).
@Suite final class RemovedFilesTests {
    private let storage = SlowlyClosingStorage()
    private let removed: RemovedFiles
    private let root: String
    private let directory: OwnedDescriptor

    init() throws {
        removed = RemovedFiles(storage, isUseful: true, patience: .seconds(60))
        root = NSTemporaryDirectory() + "ward-removed-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: false)
        directory = try OwnedDescriptor(opening: root, O_RDONLY | O_DIRECTORY)
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    private func make(_ name: String, bytes: Int = 1) throws {
        try Data(count: bytes).write(to: URL(fileURLWithPath: "\(root)/\(name)"))
    }

    /// Runs `body` while the store frees nothing. It goes on afterwards, also if `body` throws.
    private func whileHanging<T>(_ body: () throws -> T) rethrows -> T {
        try storage.hanging.withLock(body)
    }

    /// Removes one file, so that the next removed one is not alone.
    private func removeOne(of removed: RemovedFiles) throws {
        try make("first")
        let status = try storage.fstatat(directory.rawValue, "first")
        #expect(removed.hold(status, directory.rawValue, "first") == nil)
        try storage.unlinkat(directory.rawValue, "first", 0)
    }

    private func hold(_ name: String, nlink: nlink_t? = nil) throws -> RemovedFiles.Held? {
        var status = try storage.fstatat(directory.rawValue, name)
        if let nlink { status.st_nlink = nlink }
        return removed.hold(status, directory.rawValue, name)
    }

    /// Removes a file as a worker does. Returns whether it was held.
    private func remove(_ name: String) throws -> Bool {
        let held = try hold(name)
        defer { removed.giveBack(held) }
        try storage.unlinkat(directory.rawValue, name, 0)
        return held != nil
    }

    /// The number of files below the root that this process has open, removed ones included.
    private func openFiles() throws -> Int {
        try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count {
            let path = try? FileManager.default.destinationOfSymbolicLink(
                atPath: "/proc/self/fd/\($0)")
            return path?.hasPrefix(root + "/") ?? false
        }
    }

    @Test("after the answer, by another thread; whoever needs the space can wait for it")
    func oneByOne() throws {
        try removeOne(of: removed)
        for number in 0..<20 {
            try make("f\(number)")
            #expect(try remove("f\(number)"))
            #expect(removed.finish() && !removed.isBusy)
        }
        #expect(try openFiles() == 0)
        let threads = storage.threads
        #expect(!threads.isEmpty && !threads.contains(ward_gettid()))
    }

    @Test("a store that hangs: no more than some files are held, and all are removed")
    func hanging() throws {
        let count = RemovedFiles.mostFiles + 20
        for number in 0..<count { try make("f\(number)") }
        try removeOne(of: removed)
        try whileHanging {
            let held = try (0..<count).map { try remove("f\($0)") }
            #expect(held.count { $0 } == RemovedFiles.mostFiles && !held.last!)
            #expect(try FileManager.default.contentsOfDirectory(atPath: root).isEmpty)
            #expect(try openFiles() == RemovedFiles.mostFiles)
        }
        #expect(removed.finish() && !removed.isBusy)
        #expect(try openFiles() == 0)
    }

    @Test("who needs the space waits for what was removed before, and for no more")
    func meanwhile() throws {
        try removeOne(of: removed)
        for name in ["f", "g", "h"] { try make(name) }
        // They are given back in another order than they were held.
        let first = try hold("f")
        #expect(try remove("g"))
        let last = removed.newest
        let later = try hold("h")
        #expect(first != nil && later != nil)
        removed.giveBack(first)
        #expect(removed.finish(upTo: last) && removed.isBusy)
        removed.giveBack(later)
        #expect(removed.finish() && !removed.isBusy)
    }

    @Test("who needs the space of a store that hangs waits for it so long, and no longer")
    func patience() throws {
        let removed = RemovedFiles(storage, isUseful: true, patience: .zero)
        try removeOne(of: removed)
        try make("f")
        try whileHanging {
            let status = try storage.fstatat(directory.rawValue, "f")
            removed.giveBack(removed.hold(status, directory.rawValue, "f"))
            #expect(!removed.finish() && removed.isBusy)
        }
        #expect(comesTrue { !removed.isBusy }, "the file is removed")
        #expect(removed.finish())
    }

    @Test("only the last name of a file, and not more bytes than a bound")
    func others() throws {
        try removeOne(of: removed)
        try make("f")
        #expect(try hold("f", nlink: 2) == nil)
        try FileManager.default.createDirectory(
            atPath: "\(root)/d", withIntermediateDirectories: false)
        #expect(try hold("d", nlink: 1) == nil)
        #expect(symlink("f", "\(root)/l") == 0)
        #expect(try hold("l") == nil)
        var status = try storage.fstatat(directory.rawValue, "f")
        status.st_blocks = blkcnt_t(RemovedFiles.mostBytes / 512 + 1)
        #expect(removed.hold(status, directory.rawValue, "f") == nil)
        status.st_blocks -= 1
        let held = removed.hold(status, directory.rawValue, "f")
        #expect(held != nil)
        #expect(try hold("f") == nil, "the one before has taken all")
        removed.giveBack(held)
        #expect(removed.finish())
        // A file that is not removed after all, and a file that no longer exists.
        #expect(try hold("f").map { removed.giveBack($0) } != nil)
        #expect(unlink("\(root)/f") == 0)
        #expect(removed.hold(status, directory.rawValue, "f") == nil)
        let none = RemovedFiles(storage, isUseful: false)
        for _ in 0..<2 { try removeOne(of: none) }
        #expect(removed.finish())
        #expect(try openFiles() == 0)
    }

    @Test("one alone, and one after a sync, is taken apart where it is removed")
    func alone() throws {
        for number in 0..<8 { try make("f\(number)") }
        #expect(try !remove("f0"))
        #expect(try remove("f1"))
        storage.advance(RemovedFiles.togetherNanoseconds - 1)
        #expect(try remove("f2"))
        storage.advance(RemovedFiles.togetherNanoseconds)
        #expect(try !remove("f3"))
        #expect(try remove("f4"))
        removed.noteSync()
        #expect(try !remove("f5"))
        #expect(try remove("f6"))
        #expect(removed.finish())
    }

    @Test("who finds no space while there are some tries once more when they are gone")
    func space() throws {
        try removeOne(of: removed)
        for error: Errno in [.noSpace, .diskQuotaExceeded] {
            try make("f")
            storage.hanging.lock()
            #expect(try remove("f"))
            var tries = 0
            var triesBeforeWait = 0
            try removed.withSpace(willWait: {
                triesBeforeWait = tries
                storage.hanging.unlock()
            }) { () throws(Errno) in
                tries += 1
                if removed.isBusy { throw error }
            }
            #expect(tries == 2 && triesBeforeWait == 1)
            // Without removed files the caller gets the store's own error.
            tries = 0
            #expect(throws: error) {
                try removed.withSpace(willWait: { Issue.record() }) { () throws(Errno) in
                    tries += 1
                    throw error
                }
            }
            #expect(tries == 1)
        }
        try make("f")
        storage.hanging.lock()
        #expect(try remove("f"))
        var tries = 0
        #expect(throws: Errno.ioError) {
            try removed.withSpace(willWait: { Issue.record() }) { () throws(Errno) in
                tries += 1
                throw .ioError
            }
        }
        #expect(tries == 1)
        storage.hanging.unlock()
        #expect(removed.finish())
    }

    @Test("a volume on a disk: what is removed has gone, and nothing of it is open at its end")
    func volume() throws {
        let harness = try VolumeHarness(storage: storage)
        func stored() throws -> Set<String> {
            Set(try FileManager.default.contentsOfDirectory(atPath: harness.directory))
        }
        let before = try stored()
        for number in 0..<20 {
            let made = try harness.create("f\(number)")
            try harness.write(made.handle, 0, [1])
            harness.volume.release(made.handle, harness.context)
            harness.volume.forget(made.node, lookups: 1)
        }
        func unlink(_ number: Int) throws {
            try harness.withName("f\(number)") { name throws(Errno) in
                try harness.volume.unlink(1, name, caller: harness.caller, harness.context)
            }
            #expect(throws: Errno.noSuchFileOrDirectory) { try harness.lookup("f\(number)") }
        }
        func held() -> Int {
            _ = try? harness.volume.fileSystemStatus()
            #expect(!harness.volume.store.removedFiles.isBusy)
            return storage.threads.count { $0 != ward_gettid() }
        }
        let isUseful = sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1
        for number in 0..<18 { try unlink(number) }
        #expect(held() == (isUseful ? 17 : 0))
        // Syncs, as a database does with its journal.
        let (node, handle) = try harness.create("g")
        try harness.write(handle, 0, [1])
        for number in 18..<20 {
            try harness.volume.fsync(handle, dataOnly: number == 18, harness.context)
            try unlink(number)
        }
        #expect(held() == (isUseful ? 17 : 0))
        harness.volume.release(handle, harness.context)
        harness.volume.forget(node, lookups: 1)
        try harness.withName("g") { name throws(Errno) in
            try harness.volume.unlink(1, name, caller: harness.caller, harness.context)
        }
        try harness.volume.close()
        #expect(try stored() == before)
    }
}

/// A disk that can hang. It notes which thread closes a descriptor opened with `O_PATH`, and does
/// not close it while it hangs.
private final class SlowlyClosingStorage: ManualStorage, @unchecked Sendable {
    // Sendable: the added state is behind a mutex.
    private struct State {
        var held: Set<Int32> = []
        var threads: [Int32] = []
    }
    private let state = Mutex(State())

    var threads: [Int32] { state.withLock { $0.threads } }

    override func waitsForDisk(_ descriptor: Int32) -> Bool { true }

    override func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        let descriptor = try super.openat(directory, path, flags, mode: mode)
        if flags & 0o10000000 != 0 {
            state.withLock { _ = $0.held.insert(descriptor) }
        }
        return descriptor
    }

    override func close(_ descriptor: Int32) {
        let isHeld = state.withLock { state in
            guard state.held.remove(descriptor) != nil else { return false }
            state.threads.append(ward_gettid())
            return true
        }
        if isHeld { waitWhileHanging() }
        super.close(descriptor)
    }
}
