import DataProtectionTesting
import Foundation
import Testing

/// The findings of an audit: each kind, and its absence.
@Suite struct AuditTests {
    private func findings(_ device: SimulatedDevice) async throws -> [Finding] {
        try await device.audit().findings
    }

    @Test("files by class", .simulatedDevice())
    func filesByClass() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("Documents/Private", of: .complete)
        try device.write("one one one", to: "Documents/Private/a")
        try device.write("two two two two", to: "Documents/b")
        let audit = try await device.audit()
        #expect(audit.files.map(\.path) == ["/Documents/Private/a", "/Documents/b"])
        #expect(audit.files(of: .complete).map(\.path) == ["/Documents/Private/a"])
        #expect(audit.files.map(\.sizeBytes) == [11, 15])
        #expect(audit.findings.isEmpty && audit.unread.isEmpty)
    }

    @Test("a database whose side files differ in class", .simulatedDevice())
    func sideFiles() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        for name in ["good", "bad"] {
            try device.write("SQLite format 3\0 and so on", to: "A/\(name)")
            try device.write("wal", to: "A/\(name)-wal")
            try device.write("shm", to: "A/\(name)-shm")
            try device.setClass(
                of: "A/\(name)-shm", to: .completeUntilFirstUserAuthentication)
        }
        try device.write("no database at all", to: "A/notes")
        try device.write("x", to: "A/notes-journal")
        try device.setClass(of: "A/notes-journal", to: .none)
        #expect(try await findings(device).isEmpty)
        try device.setClass(of: "A/bad-wal", to: .none)
        try device.setClass(of: "A/bad-shm", to: .complete)
        for isLocked in [false, true] {
            if isLocked { try await device.lock(.now) }
            let found = try await findings(device).filter { "\($0)".contains("/A/bad") }
            #expect(found.map(\.kind) == [.sideFileClass, .sideFileClass])
            #expect("\(found.first.map { "\($0)" } ?? "")".contains("/A/bad-wal is class D"))
            #expect("\(found.last.map { "\($0)" } ?? "")".contains("it should be class C"))
        }
    }

    @Test("a real SQLite database of class A passes: row I12 holds", .simulatedDevice())
    func realDatabase() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        let script = """
            import os, sqlite3, sys
            base = sqlite3.connect("A/base")
            base.execute("pragma journal_mode=wal")
            base.execute("create table t (x)")
            base.commit()
            os._exit(0)
            """
        #expect(try device.shell("python3 -c '\(script)'") == 0)
        let audit = try await device.audit()
        #expect(audit.files.map(\.path) == ["/A/base", "/A/base-shm", "/A/base-wal"])
        #expect(audit.findings.isEmpty)
    }

    @Test("a readable copy of a protected file", .simulatedDevice())
    func readableCopy() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        try device.makeDirectory("B", of: .completeUnlessOpen)
        try device.write("the secret recipe", to: "A/recipe")
        try device.write("the secret recipe", to: "B/recipe")
        try device.write("another, of 17 by", to: "recipe")
        try device.write("{}", to: "A/small")
        try device.write("{}", to: "small")
        #expect(try await findings(device).isEmpty)
        try device.write("the secret recipe", to: "Cache")
        let found = try await findings(device)
        #expect(found.map(\.kind) == [.readableCopy])
        #expect("\(found)".contains("/Cache of class C holds the content of /A/recipe, class A"))

        try await device.lock(.now)
        let locked = try await device.audit()
        #expect(locked.findings.isEmpty)
        #expect(locked.unread == ["/A/recipe", "/A/small", "/B/recipe"])
        // The audit itself caused no denial.
        #expect(locked.denials.isEmpty)
    }

    @Test("a file deleted or replaced while it could not be read", .simulatedDevice())
    func removedUnread() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        for name in ["deleted", "replaced", "moved", "linked", "empty"] {
            try device.write(name == "empty" ? "" : "content", to: "A/\(name)")
        }
        try device.write("x", to: "settings")
        try device.write("x", to: "new")
        try device.shell("rm A/replaced; echo once more >A/replaced; ln A/linked A/other")
        #expect(try await device.removedUnread.isEmpty)

        try await device.lock(.now)
        // Row O12: all of these are allowed.
        #expect(try device.shell("mv A/moved elsewhere; rm A/linked A/empty settings") == 0)
        #expect(try await device.removedUnread.isEmpty)
        #expect(try device.shell("rm A/deleted && mv new A/replaced") == 0)
        let removed = try await device.removedUnread
        #expect(removed.map(\.path) == ["/A/deleted", "/A/replaced"])
        #expect(removed.map(\.operation) == ["unlink", "rename"])
        #expect(removed.map(\.program) == ["rm", "mv"])
        #expect(removed.map(\.protectionClass) == [.complete, .complete])
        #expect(removed.map(\.state) == ["locked", "locked"])
        #expect(try await findings(device).map(\.kind) == [.removedUnread, .removedUnread])
        // The events stay after the unlock.
        try await device.unlock()
        #expect(try await findings(device).count == 2)
    }

    @Test(
        "class B that is held open, and class C once unlocked, can be read; before first unlock not",
        .simulatedDevice())
    func removedInOtherStates() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("B", of: .completeUnlessOpen)
        try device.write("content", to: "B/held")
        try device.write("content", to: "B/closed")
        try device.write("content", to: "C")
        try device.write("content", to: "C2")
        try device.makeDirectory("D", of: .none)
        try device.write("content", to: "D/file")
        let held = try FileHandle(forReadingFrom: URL(fileURLWithPath: device.file("B/held")))
        _ = try held.read(upToCount: 1)
        try await device.lock(.now)
        try device.shell("rm B/held B/closed C")
        #expect(try await device.removedUnread.map(\.path) == ["/B/closed"])
        try held.close()
        try await device.reboot()
        try device.shell("rm C2 D/file")
        #expect(
            try await device.removedUnread.map(\.path) == ["/B/closed", "/C2"])
        #expect(try await device.removedUnread.last?.state == "beforeFirstUnlock")
    }

    @Test("denials: who, what, class, state", .simulatedDevice())
    func denials() async throws {
        let device = SimulatedDevice.current
        try device.makeDirectory("A", of: .complete)
        try device.write("x", to: "A/file")
        try await device.lock(.now)
        try device.shell("cat A/file")
        let denial = try #require(try await device.denials.first)
        #expect(denial.program == "cat")
        #expect(denial.path == "/A/file")
        #expect(denial.operation == "open")
        #expect(denial.protectionClass == .complete)
        #expect(denial.state == "locked")
        #expect(denial.uid == Int(getuid()))
        #expect(try await device.audit().denials == [denial])
    }
}
