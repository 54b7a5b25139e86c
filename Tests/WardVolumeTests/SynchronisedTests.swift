import Foundation
import Glibc
import Synchronization
import Testing
import WardFormat
import WardSystem

import func WardTestSupport.comesTrue

@testable import WardVolume

/// Rows Y1 to Y8 of docs/sync.md at the volume itself: what a mark refuses and what it reports,
/// also with races and failures.
@Suite struct SynchronisedTests {
    private static let protected = ["A", "B", "CX"]
    private static let classA = "NSFileProtectionComplete"
    private static let classC = "NSFileProtectionCompleteUntilFirstUserAuthentication"
    private static let classD = "NSFileProtectionNone"

    @Test(
        "Y1: a marked directory is class C at most; the mark survives a mount and goes when taken")
    func markedClass() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        for (spelling, expected) in [
            ("A", SynchronisedTests.classC), ("B", SynchronisedTests.classC),
            ("CX", SynchronisedTests.classC), ("C", SynchronisedTests.classC),
            ("D", SynchronisedTests.classD),
        ] {
            var directory = try harness.makeDirectory(spelling)
            try harness.setClass(directory, spelling)
            #expect(throws: Errno.noData) { try harness.synced(directory) }
            try harness.mark(directory)
            #expect(try harness.classOf(directory) == expected)
            #expect(try harness.synced(directory) == "marked")
            try harness.reopen(clean: false)
            directory = try harness.lookup(spelling).node
            #expect(try harness.synced(directory) == "marked")
            #expect(try harness.classOf(directory) == expected)
            let file = try harness.makeFile("f", in: directory)
            #expect(try harness.classOf(file) == expected)
            #expect(try harness.synced(file) == "inherited")
            try harness.unmark(directory)
            #expect(throws: Errno.noData) { try harness.synced(directory) }
            // Row Y8: the class stays.
            #expect(try harness.classOf(directory) == expected)
            #expect(throws: Errno.noData) { try harness.unmark(directory) }
            try harness.setClass(directory, "A")
        }
        let file = try harness.makeFile("f")
        #expect(throws: Errno.notDirectory) { try harness.mark(file) }
        #expect(throws: Errno.invalidArgument) { try harness.mark(file, "yes") }
        #expect(throws: Errno.invalidArgument) { try harness.mark(1, "inherited") }
        try harness.mark(1)
        #expect(try harness.synced(1) == "marked")
        #expect(throws: Errno.invalidArgument) { try harness.setClass(file, "A") }
    }

    @Test("Y1: a file that has no header keeps its class when its directory is marked")
    func emptyFiles() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let directory = try harness.makeDirectory("d")
        _ = try harness.makeFile("empty", in: directory)
        try harness.mark(directory)
        try harness.reopen()
        let again = try harness.lookup("d").node
        #expect(
            try harness.classOf(harness.lookup("empty", in: again).node)
                == SynchronisedTests.classA)
    }

    @Test("Y2: A, B and CX can't be set in it at any depth, in no state; C and D can; it is told")
    func setting() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        let top = try harness.makeDirectory("Top")
        let marked = try harness.makeDirectory("Marked", in: top)
        try harness.mark(marked)
        var directory = marked
        for depth in 0..<4 {
            let file = try harness.makeFile("f", in: directory)
            for isLocked in [false, true] {
                if isLocked { harness.lock() }
                for spelling in SynchronisedTests.protected {
                    for node in [file, directory] {
                        #expect(throws: Errno.invalidArgument) {
                            try harness.setClass(node, spelling)
                        }
                    }
                }
                for spelling in ["D", "C"] {
                    try harness.setClass(file, spelling)
                    try harness.setClass(directory, spelling)
                }
                if isLocked { try harness.unlock() }
            }
            let events = harness.syncEvents
            let path = "/Top/Marked" + String(repeating: "/d", count: depth)
            #expect(events.contains("refused setClass A \(path)/f in /Top/Marked"), "\(events)")
            #expect(events.contains("refused setClass CX \(path) in /Top/Marked"), "\(events)")
            directory = try harness.makeDirectory("d", in: directory)
        }
        #expect(harness.syncEvents.count == 4 * 2 * 2 * 3)
        // Nothing is refused beside the marked directory.
        let outside = try harness.makeFile("f", in: top)
        try harness.setClass(outside, "A")
        try harness.setClass(top, "A")
        let beside = try harness.makeDirectory("Marked2", in: top)
        #expect(try harness.classOf(beside) == SynchronisedTests.classA)
    }

    @Test("Y3: what is created below a mark is class C whatever its directory was, and stays so")
    func creating() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let marked = try harness.makeDirectory("Marked")
        let before = try harness.makeDirectory("before", in: marked)
        try harness.setClass(before, "A")
        let outside = try harness.makeDirectory("outside")
        let arrives = try harness.makeDirectory("arrives", in: outside)
        try harness.setClass(arrives, "B")
        let untouched = try harness.makeDirectory("untouched", in: outside)
        try harness.setClass(untouched, "A")
        try harness.mark(marked)
        try harness.rename("arrives", outside, "arrives", marked)
        try harness.rename("untouched", outside, "untouched", marked)
        for directory in [before, arrives] {
            #expect(try harness.classOf(directory) == SynchronisedTests.classC)
            let file = try harness.makeFile("file", in: directory)
            let inner = try harness.makeDirectory("inner", in: directory)
            let deep = try harness.makeFile("file", in: inner)
            let unnamed = try harness.makeUnnamed(in: inner)
            for node in [file, inner, deep, unnamed.node] {
                #expect(try harness.classOf(node) == SynchronisedTests.classC)
            }
            harness.volume.release(unnamed.handle, harness.context)
        }
        #expect(try harness.classOf(untouched) == SynchronisedTests.classC)
        // Records were changed only where something was made.
        try harness.rename("arrives", marked, "arrives", outside)
        try harness.rename("untouched", marked, "untouched", outside)
        try harness.reopen()
        let parent = try harness.lookup("outside").node
        #expect(
            try harness.classOf(harness.lookup("arrives", in: parent).node)
                == SynchronisedTests.classC)
        #expect(
            try harness.classOf(harness.lookup("untouched", in: parent).node)
                == SynchronisedTests.classA)
        #expect(harness.syncEvents.isEmpty, "\(harness.syncEvents)")
    }

    @Test("Y4: an unnamed file above C gets no name below a mark, not even half a long one")
    func linkingUnnamed() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let marked = try harness.makeDirectory("Marked")
        try harness.mark(marked)
        let long = String(repeating: "n", count: 240)
        for spelling in SynchronisedTests.protected {
            // At every place: no class is refused before the file has a name.
            for place in [1, marked] {
                let unnamed = try harness.makeUnnamed(in: place)
                try harness.setClass(unnamed.node, spelling)
                for name in ["f", long] {
                    #expect(throws: Errno.invalidArgument) {
                        try harness.link(unnamed.node, marked, name)
                    }
                }
                #expect(try harness.names(in: marked).isEmpty)
                #expect(
                    harness.syncEvents.contains("refused link \(spelling) /Marked/f in /Marked"))
                try harness.link(unnamed.node, 1, "\(spelling) of \(place == 1)")
                harness.volume.release(unnamed.handle, harness.context)
            }
        }
        #expect(try harness.backingEntries(of: "Marked").count == 1)  // the record
        let unnamed = try harness.makeUnnamed(in: marked)
        try harness.setClass(unnamed.node, "C")
        try harness.link(unnamed.node, marked, "f")
        harness.volume.release(unnamed.handle, harness.context)
    }

    @Test("Y5: no side file above C of a database that was moved in; -shm is class C")
    func sideFiles() throws {
        let harness = try VolumeHarness(defaultClass: .complete)
        let marked = try harness.makeDirectory("Marked")
        try harness.mark(marked)
        let (_, database) = try harness.create("base")
        try harness.write(database, 0, Array("SQLite format 3".utf8) + [0])
        try harness.rename("base", 1, "base", marked)
        for suffix in ["-wal", "-journal"] {
            #expect(throws: Errno.invalidArgument) {
                try harness.makeFile("base" + suffix, in: marked)
            }
            #expect(
                harness.syncEvents.contains(
                    "refused create A /Marked/base\(suffix) in /Marked"))
        }
        let shared = try harness.makeFile("base-shm", in: marked)
        #expect(try harness.classOf(shared) == SynchronisedTests.classC)
        #expect(try harness.names(in: marked) == ["base", "base-shm"])
        harness.volume.release(database, harness.context)
    }

    @Test("Y6: what is moved or linked in keeps its class and is told, once")
    func arriving() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let marked = try harness.makeDirectory("Marked")
        let inner = try harness.makeDirectory("inner", in: marked)
        try harness.mark(marked)
        let secret = try harness.makeFile("secret", content: "x")
        try harness.setClass(secret, "A")
        let empty = try harness.makeFile("empty")
        try harness.setClass(empty, "CX")
        _ = try harness.makeFile("plain", content: "x")
        try harness.rename("secret", 1, "secret", inner)
        try harness.rename("empty", 1, "empty", marked)
        try harness.rename("plain", 1, "plain", inner)
        #expect(
            harness.syncEvents == [
                "arrived rename A /Marked/inner/secret in /Marked",
                "arrived rename CX /Marked/empty in /Marked",
            ])
        #expect(try harness.classOf(secret) == SynchronisedTests.classA)
        // Moves inside the marked directory and out of it give no event.
        try harness.rename("secret", inner, "secret", marked)
        try harness.link(secret, inner, "again")
        try harness.rename("secret", marked, "secret", 1)
        try harness.rename("empty", marked, "empty", 1)
        #expect(harness.syncEvents.count == 2)
        // A link, an exchange.
        harness.clearEvents()
        try harness.link(empty, inner, "linked")
        try harness.rename("secret", 1, "plain", inner, flags: renameExchange)
        #expect(
            harness.syncEvents == [
                "arrived link CX /Marked/inner/linked in /Marked",
                "arrived rename A /Marked/inner/plain in /Marked",
            ], "\(harness.syncEvents)")
        // Row Y2: also by the name outside.
        #expect(throws: Errno.invalidArgument) { try harness.setClass(empty, "B") }
    }

    @Test("Y6: a directory that is moved in is one event, with the number of files above C in it")
    func arrivingDirectory() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let marked = try harness.makeDirectory("Marked")
        try harness.mark(marked)
        for name in ["none", "some"] {
            let top = try harness.makeDirectory(name)
            let deep = try harness.makeDirectory("deep", in: top)
            for (number, spelling) in ["B", "D", "A", "C", "CX"].enumerated() {
                let file = try harness.makeFile("f\(number)", in: deep, content: "x")
                try harness.setClass(file, name == "some" ? spelling : "C")
            }
            try harness.rename(name, 1, name, marked)
        }
        #expect(
            harness.waitForSyncEvents(1) == [
                "arrived rename A /Marked/some in /Marked: 3"
            ])
        // Also if it replaces an empty directory.
        try harness.rename("some", marked, "some", 1)
        _ = try harness.makeDirectory("place", in: marked)
        try harness.rename("some", 1, "place", marked)
        #expect(
            harness.waitForSyncEvents(2).last == "arrived rename A /Marked/place in /Marked: 3")
    }

    // MARK: Races

    @Test("what is above C in a marked directory is in the list that is made after the mark")
    func raceOfMarkAndClass() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let volume = harness.volume
        let marked = try harness.makeDirectory("Marked")
        let directory = try harness.makeDirectory("d", in: marked)
        let caller = harness.caller
        let isOver = Atomic(false)
        let given = Atomic(0)
        let refused = Atomic(0)
        let threads = try (0..<4).map { thread in
            try SystemThread("classes") {
                let context = WorkerContext(volume: volume)
                var number = 0
                while !isOver.load(ordering: .relaxed) {
                    number += 1
                    let name = Array("\(thread)-\(number)".utf8)
                    let node: NodeID? = name.withUnsafeBytes { name in
                        guard
                            let made = try? volume.create(
                                directory, name, mode: 0o644, umask: 0, flags: O_RDWR | O_CREAT,
                                caller: caller, context)
                        else { return nil }
                        volume.release(made.file.handle, context)
                        return made.entry.node
                    }
                    guard let node else { continue }
                    do throws(Errno) {
                        try volume.setProtectionClass(
                            of: volume.node(node), to: .complete, caller, context)
                        given.add(1, ordering: .relaxed)
                    } catch {
                        precondition(error == .invalidArgument, "\(error)")
                        refused.add(1, ordering: .relaxed)
                    }
                    volume.forget(node, lookups: 1)
                    name.withUnsafeBytes { name in
                        // Most of them are removed again, so that there are few to list.
                        if number % 16 != 0 {
                            try? volume.unlink(directory, name, caller: caller, context)
                        }
                    }
                }
            }
        }
        defer {
            isOver.store(true, ordering: .relaxed)
            threads.forEach { $0.join() }
            #expect(given.load(ordering: .relaxed) > 0)
            #expect(refused.load(ordering: .relaxed) > 0)
        }
        for round in 0..<10 {
            let before = given.load(ordering: .relaxed)
            let isGiven = comesTrue { given.load(ordering: .relaxed) != before }
            #expect(isGiven, "round \(round): a file gets a class")
            try harness.mark(marked)
            let atOnce = try harness.protectedNames(in: directory)
            let some = refused.load(ordering: .relaxed)
            let areRefused = comesTrue { refused.load(ordering: .relaxed) >= some + 8 }
            #expect(areRefused, "round \(round): classes are refused")
            let later = try harness.protectedNames(in: directory)
            #expect(later.isSubset(of: atOnce), "round \(round): \(later.subtracting(atOnce))")
            try harness.unmark(marked)
        }
    }

    @Test("a mark is in force before it returns, and returns when what began before it is done")
    func markWaits() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .none, storage: storage)
        let volume = harness.volume
        let caller = harness.caller
        let marked = try harness.makeDirectory("Marked")
        let slow = try harness.makeFile("slow", in: marked)
        let other = try harness.makeFile("other", in: marked)
        let isHeld = Atomic(false)
        let isReleased = Atomic(false)
        storage.onChange { name in
            guard name == "pwrite", !isHeld.exchange(true, ordering: .relaxed) else { return }
            _ = comesTrue(within: 60) { isReleased.load(ordering: .acquiring) }
        }
        let setting = try SystemThread("classes") {
            let context = WorkerContext(volume: volume)
            try? volume.setProtectionClass(of: volume.node(slow), to: .complete, caller, context)
        }
        let hasBegun = comesTrue { isHeld.load(ordering: .acquiring) }
        #expect(hasBegun, "the class is being stored")
        let hasReturned = Atomic(false)
        let marking = try SystemThread("mark") {
            try? volume.setMark(
                of: volume.node(marked), to: true, Caller(uid: 0, gid: 0, pid: 1),
                WorkerContext(volume: volume))
            hasReturned.store(true, ordering: .releasing)
        }
        #expect(comesTrue { (try? harness.synced(marked)) != nil }, "the directory is marked")
        #expect(throws: Errno.invalidArgument) { try harness.setClass(other, "A") }
        let isEarly = comesTrue(within: 0.02) { hasReturned.load(ordering: .acquiring) }
        #expect(!isEarly)
        isReleased.store(true, ordering: .releasing)
        marking.join()
        #expect(try harness.protectedNames(in: marked) == ["slow"])
        setting.join()
        storage.onChange(nil)
    }

    @Test("a file that gets class A while it is moved in is refused that, or told")
    func raceOfMoveAndClass() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let volume = harness.volume
        let marked = try harness.makeDirectory("Marked")
        try harness.mark(marked)
        let file = try harness.makeFile("f", content: "x")
        let caller = harness.caller
        let isOver = Atomic(false)
        let wanted = Atomic(0)
        let done = Atomic(0)
        let thread = try SystemThread("classes") {
            let context = WorkerContext(volume: volume)
            while !isOver.load(ordering: .relaxed) {
                guard wanted.load(ordering: .acquiring) > done.load(ordering: .relaxed) else {
                    continue
                }
                try? volume.setProtectionClass(
                    of: volume.node(file), to: .complete, caller, context)
                done.add(1, ordering: .releasing)
            }
        }
        var kept = 0
        for round in 1...400 {
            harness.clearEvents()
            wanted.store(round, ordering: .releasing)
            // The instant of the rename.
            if round % 3 == 0 { usleep(UInt32(round % 60)) }
            try harness.rename("f", 1, "f", marked)
            while done.load(ordering: .acquiring) < round {}
            if try harness.classOf(file) == SynchronisedTests.classA {
                kept += 1
                #expect(
                    harness.syncEvents == ["arrived rename A /Marked/f in /Marked"],
                    "round \(round): \(harness.syncEvents)")
            } else {
                #expect(
                    harness.syncEvents == ["refused setClass A /Marked/f in /Marked"],
                    "round \(round): \(harness.syncEvents)")
            }
            try harness.rename("f", marked, "f", 1)
            try harness.setClass(file, "D")
        }
        isOver.store(true, ordering: .relaxed)
        thread.join()
        #expect(kept > 0)
    }

    @Test("a directory that is moved within a marked one is never outside of it")
    func raceOfMovesWithin() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let volume = harness.volume
        let marked = try harness.makeDirectory("Marked")
        try harness.mark(marked)
        let one = try harness.makeDirectory("one", in: marked)
        let two = try harness.makeDirectory("two", in: marked)
        let moving = try harness.makeDirectory("moving", in: one)
        let deep = try harness.makeDirectory("deep", in: moving)
        let file = try harness.makeFile("f", in: deep, content: "x")
        let caller = harness.caller
        let isOver = Atomic(false)
        let wrong = Atomic(0)
        let thread = try SystemThread("classes") {
            let context = WorkerContext(volume: volume)
            while !isOver.load(ordering: .relaxed) {
                for node in [file, deep] {
                    do throws(Errno) {
                        try volume.setProtectionClass(
                            of: volume.node(node), to: .complete, caller, context)
                        wrong.add(1, ordering: .relaxed)
                    } catch {
                        if error != .invalidArgument { wrong.add(1, ordering: .relaxed) }
                    }
                }
            }
        }
        for _ in 0..<500 {
            try harness.rename("moving", one, "moving", two)
            try harness.rename("moving", two, "moving", one)
        }
        isOver.store(true, ordering: .relaxed)
        thread.join()
        #expect(wrong.load(ordering: .relaxed) == 0)
    }

    @Test("a directory that is moved out while what it came in with is looked through is outside")
    func moveOutWhileLookedThrough() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .none, storage: storage)
        let volume = harness.volume
        let caller = harness.caller
        let marked = try harness.makeDirectory("Marked")
        try harness.mark(marked)
        let top = try harness.makeDirectory("top")
        let directory = try harness.makeDirectory("directory", in: top)
        let file = try harness.makeFile("file", in: top, content: "x")
        let requests = pthread_self()
        let hasSeen = Atomic(0)
        let isMoving = Atomic(false)
        // Between the look at the name and the decision.
        storage.onStatus { status in
            guard pthread_equal(pthread_self(), requests) == 0,
                !isMoving.exchange(true, ordering: .relaxed)
            else { return }
            defer { isMoving.store(false, ordering: .relaxed) }
            let name = status.st_mode & S_IFMT == S_IFDIR ? "directory" : "file"
            hasSeen.add(1, ordering: .relaxed)
            Array(name.utf8).withUnsafeBytes { name in
                try? volume.rename(
                    top, name, 1, name, flags: 0, caller: caller, WorkerContext(volume: volume))
            }
        }
        try harness.rename("top", 1, "top", marked)
        _ = harness.waitForSyncEvents(0)
        storage.onStatus(nil)
        #expect(hasSeen.load(ordering: .relaxed) >= 2)
        for node in [directory, file] {
            #expect(throws: Errno.noData) { try harness.synced(node) }
            try harness.setClass(node, "A")
            #expect(try harness.classOf(node) == SynchronisedTests.classA)
        }
        #expect(harness.syncEvents.isEmpty)
    }

    // MARK: Failures

    @Test("a mark that fails at any step leaves the directory as it was, or marked")
    func failures() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(defaultClass: .complete, storage: storage)
        var outcomes: Set<String> = []
        for n in 0..<12 {
            let directory = try harness.makeDirectory("d\(n)")
            _ = try harness.makeFile("empty", in: directory)
            for isMarking in [true, false] {
                storage.failAfter(n, .ioError)
                let done: Void? =
                    isMarking ? try? harness.mark(directory) : try? harness.unmark(directory)
                let hasFailed = storage.hasFailed
                storage.stop()
                #expect(hasFailed || done != nil)
                let shown = (try? harness.synced(directory)) ?? "none"
                try harness.reopen(clean: false, storage: storage)
                let again = try harness.lookup("d\(n)").node
                // The answer agrees with the disk.
                #expect(((try? harness.synced(again)) ?? "none") == shown, "call \(n)")
                if done != nil { #expect((shown == "marked") == isMarking, "call \(n)") }
                #expect(
                    try harness.classOf(harness.lookup("empty", in: again).node)
                        == SynchronisedTests.classA, "call \(n)")
                outcomes.insert("\(isMarking) \(done != nil) \(shown)")
                if !isMarking { break }
                guard shown == "marked" else { break }
                harness.volume.forget(again, lookups: 1)
            }
        }
        #expect(outcomes.contains("true true marked") && outcomes.contains("true false none"))
        #expect(harness.events.integrityFailures.isEmpty)
    }
}

// MARK: Requests

extension VolumeHarness {
    /// Makes a file and closes it.
    @discardableResult
    fileprivate func makeFile(
        _ name: String, in parent: NodeID = 1, content: String = ""
    ) throws(Errno) -> NodeID {
        let (node, handle) = try create(name, in: parent)
        defer { volume.release(handle, context) }
        if !content.isEmpty { try write(handle, 0, Array(content.utf8)) }
        return node
    }

    fileprivate func makeUnnamed(
        in parent: NodeID
    ) throws(Errno) -> (node: NodeID, handle: HandleID) {
        let made = try volume.createUnnamed(
            parent, mode: 0o644, umask: 0, flags: O_RDWR, caller: caller, context)
        return (made.entry.node, made.file.handle)
    }

    fileprivate func link(_ node: NodeID, _ parent: NodeID, _ name: String) throws(Errno) {
        _ = try withName(name) { name throws(Errno) in
            try volume.link(node, parent, name, caller: caller, context)
        }
    }

    fileprivate func mark(_ node: NodeID, _ value: String = "marked") throws(Errno) {
        try withName("user.ward.synced") { name throws(Errno) in
            try withName(value) { value throws(Errno) in
                try volume.setExtendedAttribute(
                    of: node, name, value: value, flags: 0, dropSetGroupID: false, caller: caller,
                    context)
            }
        }
    }

    fileprivate func unmark(_ node: NodeID) throws(Errno) {
        try withName("user.ward.synced") { name throws(Errno) in
            try volume.removeExtendedAttribute(of: node, name, caller: caller, context)
        }
    }

    fileprivate func synced(_ node: NodeID) throws(Errno) -> String {
        let value = try withName("user.ward.synced") { name throws(Errno) in
            try volume.extendedAttribute(of: node, name, context)
        }
        return String(decoding: value, as: UTF8.self)
    }

    fileprivate func protectedNames(in directory: NodeID) throws -> Set<String> {
        var result: Set<String> = []
        for name in try names(in: directory) {
            guard let entry = try? lookup(name, in: directory) else { continue }
            if let spelling = try? classOf(entry.node), spelling == "NSFileProtectionComplete" {
                result.insert(name)
            }
            volume.forget(entry.node, lookups: 1)
        }
        return result
    }

    fileprivate func backingEntries(of name: String) throws -> [String] {
        let state = try volume.backing.directoryState(of: volume.root)
        try withName(name) { name throws(Errno) in
            _ = try volume.keys.names.encrypt(name, in: state.id, to: context.nameA)
        }
        return try FileManager.default.contentsOfDirectory(
            atPath: directory + "/" + String(cString: context.nameA))
    }

    // MARK: Events

    /// "refused setClass A /d/f in /d"; "arrived rename B /d/x in /d: 3".
    fileprivate var syncEvents: [String] {
        events.all.dropFirst(events.skipped).compactMap { event in
            switch event {
            case .refusedInSynchronised(let path, let given, let marked, let operation, _):
                "refused \(operation) \(given.letter) \(path) in \(marked)"
            case .arrivedInSynchronised(
                let path, let given, let marked, let operation, let files, _):
                "arrived \(operation) \(given.letter) \(path) in \(marked)"
                    + (files.map { ": \($0)" } ?? "")
            default: nil
            }
        }
    }

    fileprivate func clearEvents() { events.skipped = events.all.count }

    /// Waits for `count` events: directories are searched after the request was answered.
    fileprivate func waitForSyncEvents(_ count: Int) -> [String] {
        _ = comesTrue {
            syncEvents.count >= count
                && volume.rules.isIdle
        }
        return syncEvents
    }
}
