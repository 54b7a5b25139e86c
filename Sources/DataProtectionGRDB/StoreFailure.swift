import DataProtection

/// The errors of SQLite when the file system answers EPERM.
enum StoreFailure {
    /// Whether an error can come from a lock. It does if the class can't be opened, too.
    static func mayBeALock(_ error: any Error) -> Bool {
        guard let code = (error as? DatabaseError)?.resultCode.primaryResultCode else {
            return false
        }
        return codes.contains(code)
    }

    /// How long to wait for the event of a lock that may already be over. The wait is longest after
    /// errors that have hardly another cause than a lock.
    static func patience(_ error: any Error) -> Duration {
        switch (error as? DatabaseError)?.resultCode.primaryResultCode {
        case .SQLITE_IOERR, .SQLITE_CANTOPEN: .seconds(1)
        default: .milliseconds(100)
        }
    }

    private static let codes: [ResultCode] = [
        // read(2), write(2), open(2) and fcntl(2) refused.
        .SQLITE_IOERR, .SQLITE_CANTOPEN, .SQLITE_AUTH, .SQLITE_PERM, .SQLITE_READONLY,
        // SQLite's conclusions from a journal that it can't read, or from a missing header.
        .SQLITE_CORRUPT, .SQLITE_NOTADB, .SQLITE_PROTOCOL,
        // Interrupted by `DatabaseKeeper`, or rolled back by the failure of another statement.
        .SQLITE_INTERRUPT, .SQLITE_ABORT,
    ]
}

/// Thrown where a database should get another class while a program has it open.
public struct DatabaseInUseError: LocalizedError, CustomStringConvertible, Sendable {
    /// The path of the database.
    public let path: String
    /// The programs that have the database or its side files open, as "name (process ID)". Empty
    /// where only SQLite's locks show that the database is in use.
    public let users: [String]

    public var description: String {
        let whose = users.isEmpty ? "a program" : users.joined(separator: ", ")
        return "\(path) can't get another class while \(whose) has it open: close it there first"
    }

    public var errorDescription: String? { description }
}

extension FileProtectionType {
    /// The classes by their names in options and attributes.
    private static let classes: [FileProtectionType] = [
        .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication, .none,
        .completeWhenUserInactive,
    ]

    /// Reads the options of `ProtectedDatabase.init(path:options:configuration:kind:)`. Throws
    /// `DataProtectionError.unknownClass`.
    init(storeOptions options: [String: any Sendable]) throws {
        switch options[NSPersistentStoreFileProtectionKey] {
        case nil: self = .completeUntilFirstUserAuthentication
        case let type as FileProtectionType: self = try FileProtectionType(checking: type.rawValue)
        case let text as String: self = try FileProtectionType(checking: text)
        case let other?: throw DataProtectionError.unknownClass("\(other)")
        }
    }

    private init(checking text: String) throws {
        guard let known = FileProtectionType.classes.first(where: { $0.rawValue == text }) else {
            throw DataProtectionError.unknownClass(text)
        }
        self = known
    }

    /// The option of `Data.write(to:options:)` for this class.
    var writingOption: Data.WritingOptions {
        switch self {
        case .complete: .completeFileProtection
        case .completeUnlessOpen: .completeFileProtectionUnlessOpen
        case .completeWhenUserInactive: .completeFileProtectionWhenUserInactive
        case .none: .noFileProtection
        default: .completeFileProtectionUntilFirstUserAuthentication
        }
    }
}
