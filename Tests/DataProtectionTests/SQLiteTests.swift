import DataProtection
import DataProtectionSQLite
import Testing
import WardTestSupport

extension DataProtectionSuite {
    /// SQLite's C interface with Apple's flags.
    @Suite struct SQLiteTests {
        /// A connection, closed with its last reference.
        private final class Connection {
            private(set) var handle: OpaquePointer?
            let code: Int32

            init(_ name: String, _ flags: Int32) {
                code = sqlite3_open_v2(name, &handle, flags, nil)
            }

            deinit { sqlite3_close_v2(handle) }

            func run(_ sql: String) -> Int32 { sqlite3_exec(handle, sql, nil, nil, nil) }

            func number(_ sql: String) -> Int32? {
                var statement: OpaquePointer?
                defer { sqlite3_finalize(statement) }
                guard sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK,
                    sqlite3_step(statement) == SQLITE_ROW
                else { return nil }
                return sqlite3_column_int(statement, 0)
            }
        }

        private static let create = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
        private static let flags: [(FileClass, Int32)] = [
            (.complete, SQLITE_OPEN_FILEPROTECTION_COMPLETE),
            (.completeUnlessOpen, SQLITE_OPEN_FILEPROTECTION_COMPLETEUNLESSOPEN),
            (
                .completeUntilFirstUserAuthentication,
                SQLITE_OPEN_FILEPROTECTION_COMPLETEUNTILFIRSTUSERAUTHENTICATION
            ),
            (.none, SQLITE_OPEN_FILEPROTECTION_NONE),
        ]

        @Test("values are Apple's")
        func values() {
            #expect(Self.flags.map(\.1) == [0x10_0000, 0x20_0000, 0x30_0000, 0x40_0000])
            #expect(SQLITE_OPEN_FILEPROTECTION_MASK == 0x70_0000)
        }

        @Test("a new database has the class that its flag asks for, and so have its side files")
        func newDatabase() throws {
            let volume = try MountedVolume.mine()
            for (fileClass, flag) in Self.flags {
                try volume.makeDirectory(
                    fileClass.letter, fileClass == .none ? .complete : .none)
                let name = fileClass.letter + "/db"
                let connection = Connection(volume.url(name).path, Self.create | flag)
                #expect(connection.code == SQLITE_OK)
                #expect(connection.run("pragma journal_mode = wal") == SQLITE_OK)
                #expect(connection.run("create table t (x); insert into t values (1)") == SQLITE_OK)
                #expect(try volume.protection(name) == fileClass.type)
                #expect(try volume.protection(name + "-wal") == fileClass.type)
                // An existing database keeps its class, as on iOS; a flag without CREATE creates
                // nothing.
                let other = Self.flags.first { $0.1 != flag }!.1
                let again = Connection(volume.url(name).path, Self.create | other)
                #expect(again.number("select count(*) from t") == 1)
                #expect(try volume.protection(name) == fileClass.type)
                let missing = Connection(
                    volume.url(name + "2").path, SQLITE_OPEN_READWRITE | flag)
                #expect(missing.code == SQLITE_CANTOPEN)
            }
            #expect(try volume.names(in: "A") == ["db"])
        }

        @Test(
            "while locked one of class C goes on in a directory of class A; one of class A is not made"
        )
        func locked() throws {
            let volume = try MountedVolume.mine()
            try volume.makeDirectory("app", .complete)
            let c = SQLITE_OPEN_FILEPROTECTION_COMPLETEUNTILFIRSTUSERAUTHENTICATION
            do {
                let connection = Connection(volume.url("app/db").path, Self.create | c)
                #expect(connection.run("create table t (x); insert into t values (1)") == SQLITE_OK)
            }
            try volume.enter(.locked)
            let connection = Connection(volume.url("app/db").path, Self.create | c)
            #expect(connection.run("insert into t values (2)") == SQLITE_OK)
            #expect(connection.number("select count(*) from t") == 2)
            let refused = Connection(
                volume.url("app/new").path, Self.create | SQLITE_OPEN_FILEPROTECTION_COMPLETE)
            #expect(refused.code == SQLITE_CANTOPEN)
            #expect(String(cString: sqlite3_errmsg(refused.handle)).contains("unable to open"))
            #expect(try volume.names(in: "app") == ["db"])
        }

        @Test("names that are no files, URIs, and what is no class")
        func names() throws {
            let volume = try MountedVolume.mine()
            let a = SQLITE_OPEN_FILEPROTECTION_COMPLETE
            for name in [":memory:", ""] {
                let connection = Connection(name, Self.create | a)
                #expect(connection.run("create table t (x)") == SQLITE_OK, "\(name)")
            }
            let path = volume.url("a b").path
            for (number, uri) in [
                "file:\(volume.mountPoint)/a%20b?cache=private",
                "file://\(volume.mountPoint)/a%20b",
                "file://localhost\(volume.mountPoint)/a%20b#x",
            ].enumerated() {
                let connection = Connection(uri, Self.create | SQLITE_OPEN_URI | a)
                #expect(connection.run("create table t\(number) (x)") == SQLITE_OK, "\(uri)")
                #expect(try volume.protection("a b") == .complete)
            }
            for mode in ["ro", "rw", "memory"] {
                let uri = "file:\(volume.mountPoint)/none?mode=\(mode)"
                let connection = Connection(uri, Self.create | SQLITE_OPEN_URI | a)
                #expect((connection.code == SQLITE_OK) == (mode == "memory"), "\(mode)")
            }
            let unknown = Connection(volume.url("x").path, Self.create | 0x50_0000)
            #expect(unknown.code == SQLITE_MISUSE)
            #expect(try volume.names() == ["a b"])
            #expect(FileManager.default.fileExists(atPath: path))
            // Outside of a volume nothing is created, as with every call that asks for a class.
            let place = try TestEnvironment.shared.makeDirectory("elsewhere")
            defer { try? FileManager.default.removeItem(atPath: place) }
            #expect(Connection(place + "/db", Self.create | a).code == SQLITE_CANTOPEN)
            #expect(Connection(place + "/db", Self.create).code == SQLITE_OK)
        }
    }
}
