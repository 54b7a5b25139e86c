import CWardLinux
import Foundation
import Glibc
import Synchronization
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume

/// Attacks on seals that use the mount's own notes, and honest work that must not lose a seal. The
/// attacker is `MaidWithDeviceFiles`, with rights in one directory of the mount.
@Suite("Seals, notes and moves")
struct SealNoteTests {
    private let attacker = MaidWithDeviceFiles()

    private func sweep(_ harness: VolumeHarness) {
        #expect(harness.volume.sealClasses { false })
    }

    private func append(_ node: NodeID, _ harness: VolumeHarness) throws {
        let handle = try harness.open(node, O_RDWR)
        defer { harness.volume.release(handle, harness.context) }
        try harness.write(handle, 0, Array("more".utf8))
    }

    // MARK: Attacks

    @Test(
        "the key of one file does not count in the header of another",
        arguments: ["A", "B", "C", "CX"])
    func plantedKey(letter: String) throws {
        let harness = try VolumeHarness()
        let known = try harness.put("known", "of class D once")
        _ = try harness.put("victim", "text")
        try harness.setClass(known, letter)
        try harness.setClass(try harness.lookup("victim").node, letter)
        try harness.reboot()
        let source = try attacker.place("known", harness).path
        let key = try #require(try attacker.header(at: source, harness))
        try attacker.rewriteHeader(of: "victim", harness) {
            $0.wrappedKey = key.wrappedKey
            $0.capsuleID = key.capsuleID
        }
        try harness.unlockFirst()
        sweep(harness)
        let path = try attacker.place("victim", harness).path
        #expect(try attacker.unsealed(harness) == [path])
        let victim = try harness.lookup("victim").node
        #expect(throws: Errno.ioError) { try append(victim, harness) }
        #expect(harness.events.integrityFailures.contains { $0.contains("/victim") })
    }

    @Test("a new key in an empty file of a class without a seal gets one")
    func newKeyWithoutSeal() throws {
        let harness = try VolumeHarness()
        try harness.reboot()
        let early = try harness.put("early", "")
        try harness.setClass(early, "B")
        // The power goes before the unlock.
        try harness.reboot()
        try harness.unlockFirst()
        sweep(harness)
        #expect(try attacker.unsealed(harness).count == 1)
        try append(try harness.lookup("early").node, harness)
        #expect(try attacker.unsealed(harness) == [])
        try harness.reboot()
        try harness.unlockFirst()
        try append(try harness.lookup("early").node, harness)
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a directory that was made before the unlock has its class in that place alone")
    func movedInStore() throws {
        let harness = try VolumeHarness()
        for name in ["private", "mine"] {
            try harness.setClass(try harness.makeDirectory(name), "A")
        }
        let victim = try harness.lookup("private").node
        _ = try harness.put("old", in: try harness.makeDirectory("docs", in: victim), "x")
        let source = try harness.makeDirectory("source", in: try harness.lookup("mine").node)
        let moved = try harness.makeDirectory("moved", in: source)
        try harness.setClass(moved, "D")
        for name in ["made", "moved"] {
            try harness.reboot()
            let mine = try harness.lookup("mine").node
            if name == "made" {
                try harness.setClass(try harness.makeDirectory("made", in: mine), "D")
            } else {
                let source = try harness.lookup("source", in: mine).node
                try harness.rename("moved", source, "moved", mine)
            }
            try attacker.replaceDirectory("private/docs", with: "mine/" + name, harness)
            try harness.unlockFirst()
            sweep(harness)
            let parent = try harness.lookup("private").node
            let docs = try harness.lookup("docs", in: parent).node
            #expect(try harness.classOf(docs) == "NSFileProtectionComplete", "\(name)")
            let path = try attacker.place("private/docs", harness).path
            #expect(try attacker.unsealed(harness) == [path], "\(name)")
            #expect(
                harness.events.integrityFailures.contains { $0.contains("/private/docs") })
        }
    }

    @Test("a directory that is known by its place has no class in another one")
    func movedWhileKnown() throws {
        let harness = try VolumeHarness()
        for name in ["private", "mine"] {
            try harness.setClass(try harness.makeDirectory(name), "A")
        }
        let victim = try harness.lookup("private").node
        _ = try harness.makeDirectory("docs", in: victim)
        let mine = try harness.lookup("mine").node
        let trap = try harness.makeDirectory("trap", in: mine)
        try harness.setClass(trap, "D")
        try attacker.replaceDirectory("private/docs", with: "mine/trap", harness)
        #expect(throws: Errno.ioError) { try harness.lookup("docs", in: victim) }
    }

    @Test("a class of the directory that is set after its forging vouches for no file in it")
    func classSetAfterForging() throws {
        let harness = try VolumeHarness()
        try harness.setClass(try harness.makeDirectory("work"), "A")
        try harness.reboot()
        try attacker.rewriteRecord(of: "work", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        let work = try harness.lookup("work").node
        let log = try harness.put("log", in: work, "early")
        try harness.unlockFirst()
        try harness.setClass(work, "A")
        sweep(harness)
        #expect(throws: Errno.ioError) { try append(log, harness) }
        // The attacker knows its key, so no class of it counts.
        #expect(throws: Errno.ioError) { try harness.setClass(log, "A") }
        #expect(harness.events.integrityFailures.contains { $0.contains("--rekey D") })
        #expect(try attacker.unsealed(harness) == [attacker.place("work/log", harness).path])
    }

    @Test("setting a class makes no seal of the class before it")
    func noSealOfTheOldClass() throws {
        let harness = try VolumeHarness()
        try harness.setClass(try harness.makeDirectory("private"), "A")
        let parent = try harness.lookup("private").node
        let empty = try harness.put("empty", in: parent, "")
        try harness.setClass(empty, "CX")
        try harness.reboot()
        try attacker.rewriteHeader(of: "private/empty", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noFileSeal
        }
        let storage = CountingStorage()
        try harness.reopen(storage: storage)
        let node = try harness.lookup("empty", in: try harness.lookup("private").node).node
        // One header is written: that of the new class.
        let calls = try storage.calls { try harness.setClass(node, "A") }
        #expect(calls["pwrite"] == 1)
        #expect(try attacker.unsealed(harness) == [])
    }

    @Test("a file without a name gets no seal by its judgement")
    func withoutName() throws {
        let harness = try VolumeHarness()
        _ = try harness.put("bait", "x")
        try harness.reboot()
        try attacker.rewriteHeader(of: "bait", harness) { $0.fileID = SystemRandom.bytes(16) }
        let node = try harness.lookup("bait").node
        let handle = try harness.open(node, O_RDWR)
        let path = try attacker.place("bait", harness).path
        let kept = harness.directory + "/kept"
        try FileManager.default.linkItem(atPath: path, toPath: kept)
        try harness.unlink("bait")
        try harness.unlockFirst()
        try harness.write(handle, 0, [1])
        try harness.setSize(node, handle, 0)
        harness.volume.release(handle, harness.context)
        let seals = ClassSeals(try harness.allKeys(), .version2)
        let left = try #require(try attacker.header(at: kept, harness))
        #expect(!seals.isRight(left))
        try FileManager.default.removeItem(atPath: kept)
    }

    @Test("a mark of a synchronised tree makes no seal of a class that nothing vouches for")
    func markOfWeak() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        _ = try harness.makeDirectory("work")
        try harness.reboot()
        try attacker.rewriteRecord(of: "work", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        try harness.unlockFirst()
        let work = try harness.lookup("work").node
        #expect(throws: Errno.ioError) { try harness.setMark(work) }
        #expect(try attacker.unsealed(harness) == [attacker.place("work", harness).path])
        try harness.setClass(work, "C")
        try harness.setMark(work)
        #expect(try attacker.unsealed(harness) == [])
    }

    @Test("a class that is set after the notes are full counts")
    func fullNotes() throws {
        let harness = try VolumeHarness()
        try harness.reboot()
        let seals = harness.volume.seals
        let directory = try harness.makeDirectory("directory")
        let header = FileHeader(
            protectionClass: .none, fileID: SystemRandom.bytes(16),
            directoryID: SystemRandom.bytes(16))
        for inode in UInt64(1 << 40)..<UInt64(1 << 40) + 70_000 {
            seals.notes.note(header, inode: inode, .mount, hasOwnKey: true)
        }
        try harness.setClass(directory, "CX")
        try harness.unlockFirst()
        sweep(harness)
        #expect(try harness.classOf(directory) == "NSFileProtectionCompleteWhenUserInactive")
        for inode in UInt64(1 << 40)..<UInt64(1 << 40) + 70_000 { seals.notes.forget(inode: inode) }
        #expect(!seals.notes.areAny)
    }

    @Test("a class that is set before the unlock vouches for no key of another person's")
    func chosenForPlantedKey() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        let known = try harness.put("known", "of class D once")
        _ = try harness.put("victim", "text")
        _ = try harness.put("sound", "text")
        #expect(known != 1)
        try harness.reboot()
        let key = try #require(
            try attacker.header(at: try attacker.place("known", harness).path, harness))
        try attacker.rewriteHeader(of: "victim", harness) {
            $0.wrappedKey = key.wrappedKey
            $0.capsuleID = key.capsuleID
        }
        for name in ["victim", "sound"] {
            try? harness.setClass(try harness.lookup(name).node, "B")
        }
        try harness.unlockFirst()
        sweep(harness)
        let path = try attacker.place("victim", harness).path
        #expect(try attacker.unsealed(harness) == [path])
        let victim = try harness.lookup("victim").node
        #expect(throws: Errno.ioError) { try append(victim, harness) }
        try append(try harness.lookup("sound").node, harness)
    }

    @Test("a mark that another program writes before a move gets no seal")
    func markBeforeMove() throws {
        let harness = try VolumeHarness()
        for name in ["one", "two"] {
            try harness.setClass(try harness.makeDirectory(name), "A")
        }
        try harness.reboot()
        let (one, two) = (try harness.lookup("one").node, try harness.lookup("two").node)
        _ = try harness.makeDirectory("inner", in: one)
        try attacker.rewriteRecord(of: "one/inner", harness) { $0.isSynchronised = true }
        try harness.rename("inner", one, "inner", two)
        try harness.unlockFirst()
        sweep(harness)
        let inner = try harness.lookup("inner", in: try harness.lookup("two").node).node
        let new = try harness.put("new", in: inner, "secret")
        #expect(try harness.classOf(new) == "NSFileProtectionComplete")
        #expect(
            try attacker.unsealed(harness) == [attacker.place("two/inner", harness).path])
    }

    // MARK: Honest volumes

    @Test("files that are removed before the unlock leave no notes")
    func removed() throws {
        let harness = try VolumeHarness()
        try harness.reboot()
        for round in 0..<3 {
            let node = try harness.put("file", "x")
            _ = try harness.makeDirectory("directory")
            let open = try harness.open(node, O_RDWR)
            try harness.unlink("file")
            try harness.setSize(node, open, 0)
            try harness.write(open, 0, [1])
            harness.volume.release(open, harness.context)
            try harness.withName("directory") { name throws(Errno) in
                try harness.volume.removeDirectory(1, name, harness.context)
            }
            #expect(!harness.volume.seals.notes.areAny, "round \(round)")
        }
    }

    @Test("a file without a name that gets one after the unlock gets its seal")
    func linkedAfter() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        try harness.reboot()
        let made = try harness.volume.createUnnamed(
            1, mode: 0o644, umask: 0, flags: O_RDWR, caller: harness.caller, harness.context)
        try harness.write(made.file.handle, 0, Array("mail".utf8))
        try harness.unlockFirst()
        sweep(harness)
        try harness.link(made.entry.node, "mail", in: 1)
        harness.volume.release(made.file.handle, harness.context)
        harness.volume.sealChanges()
        #expect(try attacker.unsealed(harness) == [])
    }

    @Test("a pass that loses the seal key judges nothing")
    func keyGoesMeanwhile() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        for number in 0..<20 { _ = try harness.put("file\(number)", "text") }
        let all: ProtectionClassSet = [.a, .b, .c, .cx]
        _ = harness.volume.evict(all, keepOpenFiles: [.b], deadline: .seconds(5))
        try harness.unlockFirst()
        let asked = Mutex(0)
        let isDone = harness.volume.sealClasses {
            let count = asked.withLock { count in
                count += 1
                return count
            }
            if count == 10 { harness.volume.keyring.evict(all) }
            return false
        }
        #expect(!isDone)
        try harness.unlockFirst()
        sweep(harness)
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a file of class D that is made before the unlock keeps it where it is moved or linked")
    func movedIntoStronger() throws {
        let harness = try VolumeHarness()
        try harness.setClass(try harness.makeDirectory("private"), "A")
        try harness.reboot()
        let parent = try harness.lookup("private").node
        let inbox = try harness.makeDirectory("inbox")
        let moved = try harness.put("moved", in: inbox, "x")
        let linked = try harness.put("linked", in: inbox, "x")
        let inner = try harness.put("inner", in: try harness.makeDirectory("tree", in: inbox), "x")
        let (empty, handle) = try harness.create("empty", in: inbox)
        try harness.rename("moved", inbox, "moved", parent)
        try harness.rename("tree", inbox, "tree", parent)
        try harness.rename("empty", inbox, "empty", parent)
        try harness.link(linked, "linked", in: parent)
        try harness.unlockFirst()
        sweep(harness)
        for node in [moved, linked, inner] { try append(node, harness) }
        try harness.write(handle, 0, [1])
        harness.volume.release(handle, harness.context)
        try append(empty, harness)
        try harness.volume.durablePoint()
        harness.volume.background.drain()
        #expect(try attacker.unsealed(harness) == [])
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a class B file that gets another key before the unlock keeps its class")
    func newKeyBefore() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        try harness.reboot()
        let (spool, handle) = try harness.create("spool")
        try harness.write(handle, 0, Array("mail".utf8))
        // A file with several names keeps its header when it is emptied.
        try harness.link(spool, "second", in: 1)
        try harness.setSize(spool, handle, 0)
        try harness.write(handle, 0, Array("new mail".utf8))
        harness.volume.release(handle, harness.context)
        try harness.unlockFirst()
        sweep(harness)
        try append(spool, harness)
        #expect(try attacker.unsealed(harness) == [])
        #expect(harness.events.integrityFailures == [])
    }

    @Test("what is made, moved and set while the keys are away again is sealed after the unlock")
    func locksAgain() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        let open = try harness.makeDirectory("open")
        try harness.setClass(open, "D")
        let target = try harness.makeDirectory("target")
        let inbox = try harness.makeDirectory("inbox")
        try harness.setClass(inbox, "B")
        let raised = try harness.makeDirectory("raised")
        sweep(harness)
        for round in 0..<2 {
            _ = harness.volume.evict(
                [.a, .b, .c, .cx], keepOpenFiles: [.b], deadline: .seconds(5))
            if round == 0 {
                try harness.rename("open", 1, "open", target)
            } else {
                try harness.rename("open", target, "open", 1)
            }
            try harness.setClass(raised, round == 0 ? "CX" : "B")
            let mail = try harness.put("mail\(round)", in: inbox, "received")
            #expect(try attacker.unsealed(harness).count == 3)
            try harness.unlockFirst()
            sweep(harness)
            #expect(try attacker.unsealed(harness) == [])
            try append(mail, harness)
        }
        #expect(try harness.classOf(open) == "NSFileProtectionNone")
        #expect(harness.events.integrityFailures == [])
    }

    @Test("an end of the mount soon after the unlock leaves nothing without its seal")
    func endsEarly() throws {
        let harness = try VolumeHarness(defaultClass: .completeUnlessOpen)
        _ = try harness.makeDirectory("old")
        for isMoved in [false, true] {
            try harness.reboot()
            let inbox = try harness.makeDirectory("inbox\(isMoved)")
            _ = try harness.put("mail", in: inbox, "received")
            let deep = try harness.makeDirectory("deep", in: inbox)
            let draft = try harness.put("draft", in: deep, "x")
            if isMoved {
                let old = try harness.lookup("old").node
                try harness.rename("deep", inbox, "deep", old)
                try harness.rename("draft", deep, "draft", inbox)
                try harness.link(draft, "again", in: old)
            }
            #expect(try !attacker.unsealed(harness).isEmpty)
            try harness.unlockFirst()
            try harness.reboot()
            #expect(try attacker.unsealed(harness) == [])
        }
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a mark of a synchronised tree that is set before the unlock counts after it")
    func markBefore() throws {
        let harness = try VolumeHarness()
        _ = try harness.makeDirectory("shared")
        try harness.reboot()
        try harness.setMark(try harness.lookup("shared").node)
        try harness.unlockFirst()
        sweep(harness)
        let shared = try harness.lookup("shared").node
        let node = try harness.put("file", in: shared, "x")
        #expect(throws: Errno.invalidArgument) { try harness.setClass(node, "A") }
        #expect(try attacker.unsealed(harness) == [])
        #expect(harness.events.integrityFailures == [])
    }

    @Test("the journal of a database of class D that is made before the unlock keeps its class")
    func sideFile() throws {
        let harness = try VolumeHarness()
        let apps = try harness.makeDirectory("apps")
        let database = try harness.put("app.db", in: apps, "SQLite format 3\0 and pages")
        try harness.setClass(apps, "C")
        try harness.reboot()
        let directory = try harness.lookup("apps").node
        let open = try harness.open(try harness.lookup("app.db", in: directory).node, O_RDWR)
        let (journal, handle) = try harness.create("app.db-journal", in: directory)
        try harness.write(handle, 0, [1])
        #expect(try harness.classOf(journal) == "NSFileProtectionNone")
        try harness.unlockFirst()
        sweep(harness)
        try harness.write(handle, 1, [2])
        harness.volume.release(handle, harness.context)
        harness.volume.release(open, harness.context)
        #expect(try attacker.unsealed(harness) == [])
        #expect(harness.events.integrityFailures == [])
        #expect(database != journal)
    }
}
