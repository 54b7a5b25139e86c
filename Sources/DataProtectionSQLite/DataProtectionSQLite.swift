// `import DataProtectionSQLite` in place of `import SQLite3`. This is the C interface of SQLite. It
// has the flags of Apple's SQLite that ask for a protection class, and an open call that honours
// them. On Apple's platforms it is SQLite3 and nothing else.
#if os(Linux)
    @_exported import CWardSQLite3
    import DataProtection

    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// Class A, for `sqlite3_open_v2`.
    public let SQLITE_OPEN_FILEPROTECTION_COMPLETE: Int32 = 0x0010_0000
    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// Class B, for `sqlite3_open_v2`.
    public let SQLITE_OPEN_FILEPROTECTION_COMPLETEUNLESSOPEN: Int32 = 0x0020_0000
    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// Class C, for `sqlite3_open_v2`.
    public let SQLITE_OPEN_FILEPROTECTION_COMPLETEUNTILFIRSTUSERAUTHENTICATION: Int32 = 0x0030_0000
    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// Class D, for `sqlite3_open_v2`.
    public let SQLITE_OPEN_FILEPROTECTION_NONE: Int32 = 0x0040_0000
    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// The bits of all four flags.
    public let SQLITE_OPEN_FILEPROTECTION_MASK: Int32 = 0x0070_0000

    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// Opens a database as SQLite does (https://www.sqlite.org/c3ref/open.html).
    ///
    /// With one of the flags above and `SQLITE_OPEN_CREATE`, a missing database is made with that
    /// class, and its side files follow it. An existing database keeps its class, as on iOS.
    ///
    /// Returns `SQLITE_CANTOPEN`, and makes no file, where the class can't be had now, or off a
    /// ward volume (`DataProtection.policy`).
    public func sqlite3_open_v2(
        _ filename: UnsafePointer<CChar>?, _ connection: UnsafeMutablePointer<OpaquePointer?>?,
        _ flags: Int32, _ vfs: UnsafePointer<CChar>?
    ) -> Int32 {
        var plain = flags & ~SQLITE_OPEN_FILEPROTECTION_MASK
        let asked = flags & SQLITE_OPEN_FILEPROTECTION_MASK
        if asked != 0, flags & SQLITE_OPEN_CREATE != 0, flags & SQLITE_OPEN_MEMORY == 0,
            let filename, let path = DatabaseName(filename, flags).pathToCreate
        {
            guard let option = protections[asked] else { return SQLITE_MISUSE }
            do {
                try Data().write(
                    to: URL(fileURLWithPath: path), options: [.withoutOverwriting, option])
            } catch CocoaError.fileWriteFileExists {
                // A database, or a file that another program has just made.
            } catch {
                // Without SQLITE_OPEN_CREATE, SQLite reports its own error for the missing file,
                // with a connection that has the error.
                plain &= ~SQLITE_OPEN_CREATE
            }
        }
        return CWardSQLite3::sqlite3_open_v2(filename, connection, plain, vfs)
    }

    private let protections: [Int32: Data.WritingOptions] = [
        SQLITE_OPEN_FILEPROTECTION_COMPLETE: .completeFileProtection,
        SQLITE_OPEN_FILEPROTECTION_COMPLETEUNLESSOPEN: .completeFileProtectionUnlessOpen,
        SQLITE_OPEN_FILEPROTECTION_COMPLETEUNTILFIRSTUSERAUTHENTICATION:
            .completeFileProtectionUntilFirstUserAuthentication,
        SQLITE_OPEN_FILEPROTECTION_NONE: .noFileProtection,
    ]

    /// A file name as SQLite reads it (https://www.sqlite.org/uri.html).
    struct DatabaseName {
        /// The file to make; nil for a database without a file, and where the name forbids making
        /// it.
        let pathToCreate: String?

        init(_ name: UnsafePointer<CChar>, _ flags: Int32) {
            let text = String(cString: name)
            guard flags & SQLITE_OPEN_URI != 0, text.hasPrefix("file:") else {
                pathToCreate = text.isEmpty || text == ":memory:" ? nil : text
                return
            }
            var rest = text.dropFirst("file:".count)
            rest = rest.prefix { $0 != "#" }
            let query = rest.firstIndex(of: "?").map { rest[rest.index(after: $0)...] } ?? ""
            rest = rest.prefix { $0 != "?" }
            if rest.hasPrefix("//") {
                // Skip an authority, which is empty or "localhost".
                rest = rest.dropFirst(2).drop { $0 != "/" }
            }
            let mode = query.split(separator: "&").last { $0.hasPrefix("mode=") }
            let path = String(rest).removingPercentEncoding ?? String(rest)
            let isFile = !path.isEmpty && path != ":memory:"
            pathToCreate = isFile && (mode == nil || mode == "mode=rwc") ? path : nil
        }
    }
#else
    @_exported import SQLite3
#endif
