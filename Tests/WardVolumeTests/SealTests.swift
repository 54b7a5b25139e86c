import CWardLinux
import Foundation
import Glibc
import Testing
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

@testable import WardVolume
@testable import WardVolumeCheck

/// Format 2: later protection needs the passcode (docs/format.md §6.2). The attacker has the
/// backing directory and the device's files: the volume key and class D's key.
@Suite("Seals of classes")
struct SealTests {
    private let attacker = MaidWithDeviceFiles()

    private func harness(_ defaultClass: ProtectionClass = .none) throws -> VolumeHarness {
        try VolumeHarness(format: .version2, defaultClass: defaultClass)
    }

    private func content(_ node: NodeID, _ harness: VolumeHarness) throws -> String {
        let handle = try harness.open(node, O_RDONLY)
        defer { harness.volume.release(handle, harness.context) }
        return String(decoding: try harness.read(handle, 0, 1000), as: UTF8.self)
    }

    private func sweep(_ harness: VolumeHarness) {
        #expect(harness.volume.sealClasses { false })
    }

    /// Makes `private` of class A with a file in it, in a root of class D.
    private func makePrivate(_ harness: VolumeHarness) throws {
        let directory = try harness.makeDirectory("private")
        try harness.setClass(directory, "A")
        _ = try harness.put("diary", in: directory, "secret")
    }

    // MARK: Attacks

    @Test("a directory of class A that is said to be D stays A", arguments: [true, false])
    func directory(hasSeal: Bool) throws {
        let harness = try harness()
        try makePrivate(harness)
        try harness.reboot()
        try attacker.rewriteRecord(of: "private", harness) { record in
            record.protectionClass = .none
            if !hasSeal { record.seal = ClassSeal.noDirectorySeal }
        }
        try harness.unlockFirst()
        let directory = try harness.lookup("private").node
        #expect(try harness.classOf(directory) == "NSFileProtectionComplete")
        let new = try harness.put("new", in: directory, "secret of today")
        #expect(try harness.classOf(new) == "NSFileProtectionComplete")
        #expect(harness.events.integrityFailures.contains { $0.contains("/private: ") })
        #expect(harness.events.integrityFailures.count == 1)

        // No judgement leads to a seal, so each mount tells of it until the owner sets a class.
        sweep(harness)
        try harness.reboot()
        try harness.unlockFirst()
        let again = try harness.lookup("private").node
        #expect(try harness.classOf(again) == "NSFileProtectionComplete")
        #expect(harness.events.integrityFailures.count == 2)
        #expect(try attacker.unsealed(harness).count == 1)
        try harness.setClass(again, "A")
        #expect(try attacker.unsealed(harness) == [])
    }

    @Test("a forged mark of a synchronised directory does not count")
    func mark() throws {
        let harness = try harness()
        try makePrivate(harness)
        try harness.reboot()
        try attacker.rewriteRecord(of: nil, harness) {
            $0.isSynchronised = true
            $0.seal = ClassSeal.noDirectorySeal
        }
        let before = try harness.lookup("private").node
        // Class A is closed, so the creation is refused; its directory's record stays.
        #expect(throws: Errno.notPermitted) { try harness.create("early", in: before) }
        try harness.unlockFirst()
        let directory = try harness.lookup("private").node
        let new = try harness.put("new", in: directory, "secret of today")
        #expect(try harness.classOf(new) == "NSFileProtectionComplete")
        #expect(try harness.classOf(directory) == "NSFileProtectionComplete")
        #expect(harness.events.integrityFailures.contains { $0.contains("mark of ward sync") })
    }

    @Test("no pass and no program's work gives a planted directory or file a seal")
    func noOracle() throws {
        let harness = try harness()
        try makePrivate(harness)
        let mine = try harness.makeDirectory("mine")
        _ = try harness.makeDirectory("plant", in: mine)
        _ = try harness.put("bait", in: mine, "bait")
        try harness.reboot()
        // Clones with the IDs of the victims, in a directory where their classes are usual.
        let victim = try attacker.place("private", harness)
        try attacker.rewriteRecord(of: "mine/plant", harness) {
            $0.directoryID = victim.id
            $0.seal = ClassSeal.noDirectorySeal
        }
        try attacker.replaceFile("mine/bait", with: "mine/bait", harness)
        try harness.unlockFirst()
        sweep(harness)
        let node = try harness.lookup("mine").node
        let plant = try harness.lookup("plant", in: node).node
        _ = try harness.put("new", in: plant, "x")
        let bait = try harness.lookup("bait", in: node).node
        let handle = try harness.open(bait, O_RDWR)
        try harness.write(handle, 0, Array("more".utf8))
        harness.volume.release(handle, harness.context)
        let other = try harness.makeDirectory("other")
        try harness.rename("bait", node, "bait", other)
        try harness.rename("plant", node, "plant", other)
        try harness.volume.durablePoint()
        harness.volume.background.drain()
        sweep(harness)
        #expect(try attacker.unsealed(harness).count == 2)
        // An emptied file that moved keeps its header, and with it the judgement.
        try harness.setSize(bait, nil, 0)
        let again = try harness.open(bait, O_RDWR)
        try harness.write(again, 0, Array("new".utf8))
        harness.volume.release(again, harness.context)
        #expect(try attacker.unsealed(harness).count == 2)
    }

    @Test("a file that was made in a weakened directory before the unlock is not written to")
    func fileInWeakened() throws {
        let harness = try harness()
        try makePrivate(harness)
        try harness.reboot()
        try attacker.rewriteRecord(of: "private", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        let directory = try harness.lookup("private").node
        let (node, handle) = try harness.create("log", in: directory)
        try harness.write(handle, 0, Array("early".utf8))
        try harness.unlockFirst()
        #expect(throws: Errno.ioError) { try harness.write(handle, 5, Array("secret".utf8)) }
        #expect(try harness.read(handle, 0, 5) == Array("early".utf8))
        harness.volume.release(handle, harness.context)
        // The attacker knows its key.
        #expect(throws: Errno.ioError) { try harness.setClass(node, "A") }
    }

    @Test("a class before the unlock does not come back by a record without a seal")
    func staleClass() throws {
        let harness = try harness()
        try harness.reboot()
        let directory = try harness.makeDirectory("directory")
        try harness.setClass(directory, "CX")
        try harness.setClass(directory, "D")
        try harness.unlockFirst()
        try harness.setClass(directory, "A")
        sweep(harness)
        harness.volume.forget(directory, lookups: 1)
        try attacker.rewriteRecord(of: "directory", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        let again = try harness.lookup("directory").node
        _ = try harness.put("new", in: again, "x")
        #expect(harness.events.integrityFailures.contains { $0.contains("/directory: ") })
    }

    @Test("work on files before the first unlock takes nothing from their classes")
    func workBefore() throws {
        let harness = try harness(.completeUntilFirstUserAuthentication)
        let weak = try harness.put("weak", String(repeating: "x", count: 9000))
        try harness.setClass(weak, "D")
        let empty = try harness.put("empty", "")
        try harness.setClass(empty, "D")
        try harness.reboot()
        let file = try harness.open(try harness.lookup("weak").node, O_RDWR)
        try harness.write(file, 200_000, [1])
        let inbox = try harness.open(try harness.lookup("empty").node, O_RDWR)
        try harness.write(inbox, 0, Array("received".utf8))
        try harness.unlockFirst()
        try harness.write(file, 0, [2])
        try harness.write(inbox, 8, [3])
        harness.volume.release(file, harness.context)
        harness.volume.release(inbox, harness.context)
        sweep(harness)
        #expect(try attacker.unsealed(harness) == [])
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a header that an empty file gets after the first unlock has its seal")
    func headerAfter() throws {
        let harness = try harness()
        try harness.reboot()
        let (made, handle) = try harness.create("made")
        try harness.unlockFirst()
        let setNote = { (node: NodeID) in
            try harness.withName("user.note") { name throws(Errno) in
                try harness.withName("x") { value throws(Errno) in
                    try harness.volume.setExtendedAttribute(
                        of: node, name, value: value, flags: 0, dropSetGroupID: false,
                        caller: harness.caller, harness.context)
                }
            }
        }
        try setNote(made)
        harness.volume.release(handle, harness.context)
        #expect(try attacker.unsealed(harness) == [])
    }

    @Test("a file without a name can be written to after the first unlock")
    func unlinked() throws {
        let harness = try harness()
        _ = try harness.put("file", "text")
        try harness.reboot()
        let node = try harness.lookup("file").node
        let handle = try harness.open(node, O_RDWR)
        try harness.unlink("file")
        try harness.unlockFirst()
        try harness.write(handle, 0, Array("more".utf8))
        harness.volume.release(handle, harness.context)
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a directory that was looked at before the first unlock is judged after it")
    func lookedAtBefore() throws {
        let harness = try harness()
        try makePrivate(harness)
        try harness.reboot()
        try attacker.rewriteRecord(of: "private", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        let directory = try harness.lookup("private").node
        // Nothing can vouch for a class yet.
        #expect(try harness.classOf(directory) == "NSFileProtectionNone")
        try harness.unlockFirst()
        let new = try harness.put("new", in: directory, "secret of today")
        #expect(try harness.classOf(new) == "NSFileProtectionComplete")
        #expect(harness.events.integrityFailures.count == 1)
    }

    @Test("a directory that is made in a weakened one before the first unlock is not weaker")
    func madeInWeakened() throws {
        let harness = try harness()
        try makePrivate(harness)
        try harness.reboot()
        try attacker.rewriteRecord(of: "private", harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        let directory = try harness.lookup("private").node
        let inner = try harness.makeDirectory("inner", in: directory)
        let chosen = try harness.makeDirectory("chosen", in: directory)
        try harness.setClass(chosen, "CX")
        try harness.unlockFirst()
        #expect(try harness.classOf(inner) == "NSFileProtectionComplete")
        #expect(try harness.classOf(chosen) == "NSFileProtectionCompleteWhenUserInactive")
        sweep(harness)
        #expect(
            try Set(attacker.unsealed(harness)) == [
                attacker.place("private", harness).path,
                attacker.place("private/inner", harness).path,
            ])
    }

    @Test("the root without its seal has class A")
    func root() throws {
        let harness = try harness(.completeUntilFirstUserAuthentication)
        try harness.reboot()
        try attacker.rewriteRecord(of: nil, harness) {
            $0.protectionClass = .none
            $0.seal = ClassSeal.noDirectorySeal
        }
        try harness.unlockFirst()
        let new = try harness.put("new", "secret")
        #expect(try harness.classOf(new) == "NSFileProtectionComplete")
        #expect(harness.events.integrityFailures.count == 1)
        try harness.setClass(1, "C")
        try harness.reboot()
        try harness.unlockFirst()
        #expect(try harness.classOf(1).hasSuffix("UntilFirstUserAuthentication"))
        #expect(harness.events.integrityFailures.count == 1)
    }

    @Test("a file of class D in the place of one of class A can be read, and not changed")
    func file() throws {
        let harness = try harness()
        try makePrivate(harness)
        _ = try harness.put("bait", "what the attacker wrote")
        try harness.reboot()
        try attacker.replaceFile("private/diary", with: "bait", harness)
        try harness.unlockFirst()
        let directory = try harness.lookup("private").node
        let node = try harness.lookup("diary", in: directory).node
        #expect(try content(node, harness) == "what the attacker wrote")
        #expect(throws: Errno.ioError) { try harness.open(node, O_RDWR) }
        #expect(throws: Errno.ioError) { try harness.open(node, O_WRONLY | O_TRUNC) }
        #expect(throws: Errno.ioError) { try harness.setSize(node, nil, 3) }
        let isTold = { (failure: String) in failure.contains("ward class set --rekey D") }
        #expect(harness.events.integrityFailures.allSatisfy(isTold))
        #expect(!harness.events.integrityFailures.isEmpty)
        // The pass over the tree gives it no seal.
        sweep(harness)
        #expect(throws: Errno.ioError) { try harness.open(node, O_RDWR) }

        // A class would vouch for a key of the attacker's. The owner makes a new file.
        #expect(throws: Errno.ioError) { try harness.setClass(node, "D") }
        #expect(throws: Errno.ioError) { try harness.setClass(node, "A") }
        #expect(harness.events.integrityFailures.contains { $0.contains("--rekey") })
    }

    @Test("a file that a program had open before the first unlock is judged at its next change")
    func openFile() throws {
        let harness = try harness()
        try makePrivate(harness)
        _ = try harness.put("bait", "what the attacker wrote")
        try harness.reboot()
        try attacker.replaceFile("private/diary", with: "bait", harness)
        let directory = try harness.lookup("private").node
        let node = try harness.lookup("diary", in: directory).node
        let handle = try harness.open(node, O_RDWR)
        try harness.write(handle, 0, Array("before".utf8))
        try harness.unlockFirst()
        #expect(throws: Errno.ioError) { try harness.write(handle, 0, Array("after".utf8)) }
        #expect(try harness.read(handle, 0, 6) == Array("before".utf8))
        harness.volume.release(handle, harness.context)
    }

    @Test("a directory's seal does not hold in another directory")
    func movedDirectory() throws {
        let harness = try harness(.completeUntilFirstUserAuthentication)
        let open = try harness.makeDirectory("open")
        try harness.setClass(open, "D")
        let inner = try harness.makeDirectory("inner", in: open)
        #expect(try harness.classOf(inner) == "NSFileProtectionNone")
        let home = try harness.makeDirectory("home")
        let old = try harness.makeDirectory("private", in: home)
        try harness.setClass(old, "A")
        try harness.reboot()
        try attacker.replaceDirectory("home/private", with: "open/inner", harness)
        try harness.unlockFirst()
        let node = try harness.lookup("private", in: try harness.lookup("home").node).node
        #expect(try harness.classOf(node) != "NSFileProtectionNone")
        #expect(harness.events.integrityFailures.contains { $0.contains("/home/private") })
    }

    // MARK: Honest volumes

    @Test("what is made before the first unlock keeps its class, and is sealed after it")
    func madeBefore() throws {
        let harness = try harness()
        try makePrivate(harness)
        try harness.reboot()
        let inbox = try harness.makeDirectory("inbox")
        let weaker = try harness.makeDirectory("weaker", in: try harness.lookup("private").node)
        try harness.setClass(weaker, "D")
        let note = try harness.put("note", in: weaker, "made before")
        let raised = try harness.makeDirectory("raised")
        try harness.setClass(raised, "B")
        let mail = try harness.put("mail", in: raised, "received")
        // A file of class D, in a directory that gets class A.
        let (kept, handle) = try harness.create("kept", in: weaker)
        try harness.write(handle, 0, Array("one".utf8))
        try harness.setClass(weaker, "A")
        #expect(try attacker.unsealed(harness).count > 4)
        try harness.unlockFirst()
        try harness.write(handle, 3, Array(" two".utf8))
        harness.volume.release(handle, harness.context)
        #expect(try harness.classOf(inbox) == "NSFileProtectionNone")
        #expect(try harness.classOf(weaker) == "NSFileProtectionComplete")
        #expect(try harness.classOf(raised) == "NSFileProtectionCompleteUnlessOpen")
        sweep(harness)
        #expect(try attacker.unsealed(harness) == [])
        for (node, text) in [(note, "made before"), (mail, "received"), (kept, "one two")] {
            #expect(try content(node, harness) == text)
            let handle = try harness.open(node, O_RDWR)
            try harness.write(handle, text.utf8.count, [33])
            harness.volume.release(handle, harness.context)
        }
        #expect(harness.events.integrityFailures == [])
        try harness.reboot()
        try harness.unlockFirst()
        sweep(harness)
        #expect(harness.events.integrityFailures == [])
    }

    @Test("what an earlier mount made and never saw an unlock keeps its class")
    func madeLongBefore() throws {
        let harness = try harness()
        try harness.reboot()
        let log = try harness.makeDirectory("log")
        _ = try harness.put("today", in: log, "line")
        try harness.reboot()
        try harness.unlockFirst()
        let directory = try harness.lookup("log").node
        #expect(try harness.classOf(directory) == "NSFileProtectionNone")
        let file = try harness.lookup("today", in: directory).node
        let handle = try harness.open(file, O_RDWR)
        try harness.write(handle, 4, Array("s".utf8))
        harness.volume.release(handle, harness.context)
        #expect(try harness.classOf(file) == "NSFileProtectionNone")
        sweep(harness)
        // The directory is told of, because nothing vouches for it. No seal comes by itself.
        #expect(harness.events.integrityFailures.count == 1)
        #expect(try attacker.unsealed(harness).count == 2)
        try harness.setClass(directory, "D")
        try harness.setClass(file, "D")
        #expect(try attacker.unsealed(harness) == [])
    }

    @Test("everything that programs make, change and move has its seal")
    func operations() throws {
        let harness = try harness()
        func sealed(_ what: String) throws {
            #expect(try attacker.unsealed(harness) == [], "\(what)")
        }
        let a = try harness.makeDirectory("a")
        let b = try harness.makeDirectory("b")
        try harness.setClass(b, "A")
        try sealed("directories")
        let file = try harness.put("file", in: a, String(repeating: "x", count: 9000))
        let empty = try harness.put("empty", in: a, "")
        try harness.setClass(file, "B")
        try harness.setClass(empty, "CX")
        try sealed("classes")
        try harness.rename("file", a, "file", b)
        try harness.rename("empty", a, "empty", b)
        try harness.rename("a", 1, "a", b)
        try harness.volume.durablePoint()
        harness.volume.background.drain()
        try sealed("moves")
        try harness.setSize(file, nil, 0)
        try sealed("emptied")
        let handle = try harness.open(file, O_RDWR)
        try harness.write(handle, 100_000, [1])
        try harness.volume.allocate(
            handle, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offsetBytes: 8192,
            lengthBytes: 65536, caller: harness.caller, harness.context)
        harness.volume.release(handle, harness.context)
        try sealed("sparse")
        #expect(harness.events.integrityFailures == [])
    }

    @Test("a directory that was moved before the first unlock keeps its class")
    func movedBefore() throws {
        let harness = try harness()
        try makePrivate(harness)
        let home = try harness.makeDirectory("home")
        try harness.reboot()
        try harness.rename("private", 1, "private", try harness.lookup("home").node)
        try harness.rename("private", try harness.lookup("home").node, "again", 1)
        try harness.rename("again", 1, "private", try harness.lookup("home").node)
        #expect(try attacker.unsealed(harness).count == 1)
        try harness.unlockFirst()
        sweep(harness)
        #expect(try attacker.unsealed(harness) == [])
        #expect(harness.events.integrityFailures == [])
        let node = try harness.lookup("private", in: try harness.lookup("home").node).node
        #expect(try harness.classOf(node) == "NSFileProtectionComplete")
        #expect(home != node)
    }

    // MARK: The check

    @Test("a check finds classes without seals, and leaves them to the owner")
    func check() throws {
        let harness = try harness()
        try makePrivate(harness)
        _ = try harness.put("bait", "what the attacker wrote")
        try harness.reboot()
        try attacker.replaceFile("private/diary", with: "bait", harness)
        try attacker.rewriteRecord(of: "private", harness) {
            $0.protectionClass = .completeUntilFirstUserAuthentication
            $0.seal = ClassSeal.noDirectorySeal
        }
        try harness.unlockFirst()
        let found = VolumeCheck(harness.volume, repairs: false, name: "now").run().findings
            .filter { $0.kind == .seal }
        #expect(Set(found.map(\.path)) == ["/private", "/private/diary"])
        _ = VolumeCheck(harness.volume, repairs: true, name: "now").run()
        try harness.setClass(try harness.lookup("private").node, "A")
        let left = VolumeCheck(harness.volume, repairs: false, name: "then").run().findings
        #expect(left.map(\.path) == ["/private/diary"])
    }
}
