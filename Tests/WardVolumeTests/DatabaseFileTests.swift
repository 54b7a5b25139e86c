import Glibc
import Testing
import WardFormat
import WardSystem

@testable import WardVolume

/// The files that SQLite makes beside a database (row I12).
@Suite struct DatabaseFileTests {
    private let a = ProtectionClass.complete.fileProtectionName
    private let c = ProtectionClass.completeUntilFirstUserAuthentication.fileProtectionName
    private let d = ProtectionClass.none.fileProtectionName

    private func classOfNew(_ name: String, _ harness: VolumeHarness) throws -> String {
        let (node, file) = try harness.create(name)
        defer { harness.volume.release(file, harness.context) }
        return try harness.classOf(node)
    }

    @Test("An open file without content counts as a database; one that nobody has open does not")
    func emptyDatabase() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        let (node, file) = try harness.create("new.db")
        try harness.setClass(node, "A")
        for suffix in ["-journal", "-wal", "-mj01AB3F900"] {
            #expect(try classOfNew("new.db" + suffix, harness) == a, "\(suffix)")
        }
        for suffix in ["-shm", "-mj01AB3F90", "-mj01AB3F90G", "-journal2", ".journal"] {
            #expect(try classOfNew("new.db" + suffix, harness) == c, "\(suffix)")
        }
        try harness.write(file, 0, Array("not a database".utf8) + [0, 1, 2])
        #expect(try classOfNew("-journal", harness) == c)
        for name in ["new.db-journal", "new.db-wal"] {
            try harness.withName(name) { name throws(Errno) in
                try harness.volume.unlink(1, name, caller: harness.caller, harness.context)
            }
        }
        #expect(try classOfNew("new.db-journal", harness) == c)
        let (other, otherFile) = try harness.create("closed.db")
        try harness.setClass(other, "A")
        harness.volume.release(otherFile, harness.context)
        // No file gets a weaker class because of a file that may be no database.
        let (weaker, weakerFile) = try harness.create("weaker.db")
        try harness.setClass(weaker, "D")
        #expect(try classOfNew("weaker.db-journal", harness) == c)
        harness.volume.release(weakerFile, harness.context)
        #expect(try classOfNew("closed.db-journal", harness) == c)
        harness.volume.release(file, harness.context)
    }

    @Test("A database that gets a stronger class takes its side files along, and no other file")
    func raised() throws {
        let harness = try VolumeHarness(defaultClass: .none)
        let (database, file) = try harness.create("x")
        try harness.write(file, 0, Array("SQLite format 3\0and more".utf8))
        let (text, textFile) = try harness.create("text")
        try harness.write(textFile, 0, Array("no database at all".utf8))
        var sides: [String: NodeID] = [:]
        for name in ["x-journal", "x-wal", "x-shm", "text-journal"] {
            let (node, side) = try harness.create(name)
            try harness.write(side, 0, [1, 2, 3])
            harness.volume.release(side, harness.context)
            sides[name] = node
        }
        try harness.setClass(text, "A")
        try harness.setClass(database, "A")
        #expect(try harness.classOf(database) == a)
        for (name, expected) in [
            ("x-journal", a), ("x-wal", a), ("x-shm", c), ("text-journal", d),
        ] {
            #expect(try harness.classOf(sides[name]!) == expected, "\(name)")
        }
        harness.lock()
        for name in ["x-journal", "x-wal"] {
            #expect(throws: Errno.notPermitted) { _ = try harness.open(sides[name]!) }
        }
        try harness.unlock()
        // A weaker class changes the database alone.
        try harness.setClass(database, "C")
        #expect(try harness.classOf(sides["x-wal"]!) == a)
        for handle in [file, textFile] { harness.volume.release(handle, harness.context) }
        try harness.reopen()
        #expect(try harness.classOf(try harness.lookup("x-journal").node) == a)
        let side = try harness.open(try harness.lookup("x-journal").node)
        #expect(try harness.read(side, 0, 10) == [1, 2, 3])
        harness.volume.release(side, harness.context)
    }

    @Test("Where a side file can't be raised, the database keeps its class")
    func notRaised() throws {
        let harness = try VolumeHarness(defaultClass: .completeUntilFirstUserAuthentication)
        let (database, file) = try harness.create("x")
        try harness.write(file, 0, Array("SQLite format 3\0and more".utf8))
        let (side, sideFile) = try harness.create("x-journal")
        try harness.setClass(side, "CX")
        try harness.write(sideFile, 0, [1])
        harness.volume.release(sideFile, harness.context)
        _ = harness.volume.evict([.cx], keepOpenFiles: [], deadline: .seconds(5))
        #expect(throws: Errno.notPermitted) { try harness.setClass(database, "A") }
        #expect(try harness.classOf(database) == c)
        harness.volume.release(file, harness.context)
    }
}
