import Foundation
import Glibc
import Testing
import WardSimulatedStorage
import WardSystem
import WardVolumeCheck

@testable import WardVolume

/// Backing stores that answer EINVAL to `RENAME_NOREPLACE` and `RENAME_EXCHANGE`.
@Suite struct RenameFlagTests {
    private func harness() throws -> (VolumeHarness, FailingStorage) {
        let storage = FailingStorage()
        storage.forgetRenameFlags()
        return (try VolumeHarness(storage: storage), storage)
    }

    private func rename(
        _ harness: VolumeHarness, _ old: String, _ new: String, flags: UInt32 = 0
    ) throws(Errno) {
        try harness.withName(old) { old throws(Errno) in
            try harness.withName(new) { new throws(Errno) in
                try harness.volume.rename(
                    1, old, 1, new, flags: flags, caller: harness.caller, harness.context)
            }
        }
    }

    private func makeDirectory(_ harness: VolumeHarness, _ name: String) throws(Errno) -> Entry {
        try harness.withName(name) { name throws(Errno) in
            try harness.volume.makeDirectory(
                1, name, mode: 0o755, umask: 0, caller: harness.caller, harness.context)
        }
    }

    @Test("Directories are made, and never in the place of anything")
    func directories() throws {
        let (harness, _) = try harness()
        let made = try makeDirectory(harness, "directory")
        #expect(throws: Errno.fileExists) { try makeDirectory(harness, "directory") }
        let (_, handle) = try harness.create("file")
        harness.volume.release(handle, harness.context)
        #expect(throws: Errno.fileExists) { try makeDirectory(harness, "file") }
        #expect(try harness.names() == ["directory", "file"])
        #expect(try harness.lookup("directory").node == made.node)
        try harness.reopen()
        #expect(try harness.names(in: try harness.lookup("directory").node) == [])
    }

    @Test("A rename that must replace nothing: of a file, a link, a directory")
    func noReplace() throws {
        let (harness, storage) = try harness()
        let (_, handle) = try harness.create("file")
        try harness.write(handle, 0, [1, 2, 3])
        try rename(harness, "file", "moved", flags: renameNoReplace)
        #expect(try harness.read(handle, 0, 10) == [1, 2, 3])
        harness.volume.release(handle, harness.context)
        let (_, other) = try harness.create("other")
        harness.volume.release(other, harness.context)
        #expect(throws: Errno.fileExists) {
            try rename(harness, "moved", "other", flags: renameNoReplace)
        }
        _ = try makeDirectory(harness, "a")
        _ = try makeDirectory(harness, "b")
        #expect(throws: Errno.fileExists) { try rename(harness, "a", "b", flags: renameNoReplace) }
        #expect(throws: Errno.fileExists) {
            try rename(harness, "a", "other", flags: renameNoReplace)
        }
        try rename(harness, "a", "c", flags: renameNoReplace)
        #expect(try harness.names() == ["b", "c", "moved", "other"])
        // The store fails between the two steps: the old or the new name is there, and only one.
        for call in 0..<4 {
            storage.failAfter(call, .ioError)
            let isMoved = (try? rename(harness, "moved", "new", flags: renameNoReplace)) != nil
            storage.stop()
            #expect(try harness.names() == ["b", "c", isMoved ? "new" : "moved", "other"])
            if isMoved { break }
        }
        try harness.reopen()
        let found = try harness.open(try harness.lookup("new").node)
        #expect(try harness.read(found, 0, 10) == [1, 2, 3])
        harness.volume.release(found, harness.context)
    }

    @Test("A directory over an empty one; two that change places are refused, as the store does")
    func replaced() throws {
        let (harness, storage) = try harness()
        let full = try makeDirectory(harness, "full")
        let (_, handle) = try harness.create("file", in: full.node)
        harness.volume.release(handle, harness.context)
        _ = try makeDirectory(harness, "empty")
        #expect(throws: Errno.directoryNotEmpty) { try rename(harness, "empty", "full") }
        #expect(throws: Errno.invalidArgument) {
            try rename(harness, "empty", "full", flags: renameExchange)
        }
        for call in 0..<20 {
            storage.failAfter(call, .ioError)
            let isMoved = (try? rename(harness, "full", "empty")) != nil
            storage.stop()
            #expect(try harness.names() == (isMoved ? ["empty"] : ["empty", "full"]), "\(call)")
            if isMoved { break }
        }
        try harness.reopen()
        #expect(try harness.names(in: try harness.lookup("empty").node) == ["file"])
    }

    @Test(
        "RENAME_WHITEOUT leaves a character device 0/0 under the old name: of files, links, directories, long names"
    )
    func whiteout() throws {
        let harness = try VolumeHarness()
        let long = String(repeating: "n", count: 200)
        for name in ["file", long] {
            let (_, handle) = try harness.create(name)
            try harness.write(handle, 0, [1, 2, 3])
            harness.volume.release(handle, harness.context)
        }
        for name in ["directory", "empty"] { _ = try makeDirectory(harness, name) }
        let inner = try harness.lookup("directory").node
        _ = try harness.makeDirectory("inner", in: inner)
        func isWhiteout(_ name: String) throws -> Bool {
            let entry = try harness.lookup(name)
            return entry.attributes.mode & UInt32(S_IFMT) == UInt32(S_IFCHR)
                && entry.attributes.deviceMajor == 0 && entry.attributes.deviceMinor == 0
        }
        try rename(harness, "file", "moved", flags: renameWhiteout)
        #expect(throws: Errno.fileExists) {
            try rename(harness, "moved", "file", flags: renameWhiteout | renameNoReplace)
        }
        try rename(harness, "moved", "moved on", flags: renameWhiteout | renameNoReplace)
        try rename(harness, long, "short", flags: renameWhiteout)
        try rename(harness, "directory", "empty", flags: renameWhiteout)
        #expect(throws: Errno.invalidArgument) {
            try rename(harness, "file", "empty", flags: renameWhiteout | renameExchange)
        }
        for round in 0..<2 {
            for name in ["file", "moved", long, "directory"] {
                #expect(try isWhiteout(name), "\(name), \(round)")
            }
            #expect(try harness.names(in: try harness.lookup("empty").node) == ["inner"])
            for name in ["moved on", "short"] {
                let handle = try harness.open(try harness.lookup(name).node)
                #expect(try harness.read(handle, 0, 10) == [1, 2, 3], "\(name)")
                harness.volume.release(handle, harness.context)
            }
            let report = VolumeCheck(harness.volume, repairs: false, name: "now", threads: 1).run()
            #expect(report.findings.isEmpty && report.unreachable.isEmpty)
            try harness.reopen()
        }
        // A whiteout is removed and replaced like any other name.
        try rename(harness, "short", "file")
        #expect(try !isWhiteout("file"))
        try harness.withName(long) { name throws(Errno) in
            try harness.volume.unlink(1, name, caller: harness.caller, harness.context)
        }
        #expect(try harness.names() == ["directory", "empty", "file", "moved", "moved on"])
    }

    @Test(
        "RENAME_WHITEOUT and a power cut at any moment: the old names or the new",
        arguments: DiskKind.Order.allCases)
    func whiteoutAndPowerCuts(order: DiskKind.Order) throws {
        let bench = try CrashBench(DiskKind(order: order, atomicBytes: 4096))
        let volume = bench.volume
        _ = try volume.makeLink("old", in: 1, to: "moved")
        _ = try volume.makeLink("new", in: 1, to: "replaced")
        try volume.volume.durablePoint()
        try bench.crash(seeds: 4) {
            try volume.rename("old", in: 1, to: "new", in: 1, flags: renameWhiteout)
            try volume.volume.durablePoint()
        } _: { left, place in
            let (old, new) = (try left.lookup("old", in: 1), try left.lookup("new", in: 1))
            let target = try left.volume.readLink(new.node, left.context)
            let isNew = target == Array("moved".utf8)
            #expect(isNew || target == Array("replaced".utf8), "\(place)")
            #expect(
                old.attributes.mode & UInt32(S_IFMT) == UInt32(isNew ? S_IFCHR : S_IFLNK),
                "\(place)")
        }
    }
}
