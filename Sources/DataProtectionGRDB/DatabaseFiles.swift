internal import CWardLinux
import DataProtection
internal import GRDBSQLite
internal import WardControl
internal import WardSystem

/// Questions about the files of a database.
enum DatabaseFiles {
    /// The class of a file; nil off a ward volume. Works in every state of the volume.
    static func protection(_ path: String) throws -> FileProtectionType? {
        try FileManager.default.attributesOfItem(atPath: path)[.protectionKey]
            as? FileProtectionType
    }

    /// The size of a file in bytes.
    static func size(_ path: String) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int ?? 0
    }

    /// Gives existing side files (of a crash or a copy) the class that row I12 gives to new ones.
    static func alignSideFiles(_ path: String, _ protection: FileProtectionType) throws {
        let index: FileProtectionType =
            protection == .none ? .none : .completeUntilFirstUserAuthentication
        for (suffix, wanted) in [("-wal", protection), ("-journal", protection), ("-shm", index)] {
            let file = path + suffix
            guard FileManager.default.fileExists(atPath: file),
                let found = try self.protection(file), found != wanted
            else { continue }
            try FileManager.default.setAttributes([.protectionKey: wanted], ofItemAtPath: file)
        }
    }

    /// The bytes of a database in memory.
    static func serialized(_ db: Database) throws -> Data {
        // SQLite makes the first page only when something is written.
        try db.execute(sql: "PRAGMA user_version = 0")
        var count: sqlite3_int64 = 0
        guard let bytes = sqlite3_serialize(db.sqliteConnection, "main", &count, 0), count > 0
        else { throw DatabaseError(resultCode: .SQLITE_NOMEM) }
        return Data(
            bytesNoCopy: bytes, count: Int(count),
            deallocator: .custom { bytes, _ in sqlite3_free(bytes) })
    }

    /// Whether the file's class keeps it from being opened, for a program that the daemon does not
    /// answer. SQLite must have no descriptor of the file: closing this one drops the process's
    /// locks.
    static func isRefused(_ path: String) -> Bool {
        do throws(Errno) {
            _ = try OwnedDescriptor(opening: path, O_RDONLY | O_CLOEXEC)
            return false
        } catch {
            return error == .notPermitted
        }
    }

    /// The programs that have a database or its side files open, as "name (process ID)". Empty
    /// where the daemon does not answer.
    static func users(of path: String) -> [String] {
        guard let canonical = realpath(path, nil) else { return [] }
        defer { free(canonical) }
        let place = String(cString: canonical)
        guard let mount = try? MountTable().covering(place), let report = holders(path) else {
            return []
        }
        let inside =
            (mount.root == "/" ? "" : mount.root) + place.dropFirst(mount.mountPoint.count)
        let files = Set(["", "-wal", "-shm", "-journal"].map { bare(inside + $0) })
        let found = report.holders.filter { files.contains(bare($0.path)) }
        return Set(found.map { "\($0.program) (\($0.pid))" }).sorted()
    }

    /// Nil where the daemon does not answer. A busy daemon is asked again for two seconds.
    private static func holders(_ path: String) -> HolderReport? {
        var attempts = 40
        while true {
            do throws(ControlError) {
                return try ControlClient(volumeAt: path, timeout: .seconds(30)).holders()
            } catch {
                attempts -= 1
                guard case .volume(.busy) = error.code, attempts > 0 else { return nil }
                usleep(50_000)
            }
        }
    }

    /// The path without a slash in front. Reports have paths with and without it.
    private static func bare(_ path: String) -> Substring { path.drop { $0 == "/" } }
}
