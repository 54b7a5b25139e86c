import DataProtection

/// What SQLite calls it when the file system says EPERM.
enum StoreFailure {
    /// Whether an error can be due to a lock. It is one if the class can't be opened, too.
    static func mayBeALock(_ error: any Error) -> Bool {
        guard let code = (error as? DatabaseError)?.resultCode.primaryResultCode else {
            return false
        }
        return codes.contains(code)
    }

    /// How long the news of a lock that is over already are waited for: longest after what hardly
    /// anything but a lock leads to.
    static func patience(_ error: any Error) -> Duration {
        switch (error as? DatabaseError)?.resultCode.primaryResultCode {
        case .SQLITE_IOERR, .SQLITE_CANTOPEN: .seconds(1)
        default: .milliseconds(100)
        }
    }

    private static let codes: [ResultCode] = [
        // read(2), write(2), open(2) and fcntl(2) refused.
        .SQLITE_IOERR, .SQLITE_CANTOPEN, .SQLITE_AUTH, .SQLITE_PERM, .SQLITE_READONLY,
        // What SQLite concludes from a journal that it can't read, or a header that is not there.
        .SQLITE_CORRUPT, .SQLITE_NOTADB, .SQLITE_PROTOCOL,
        // Interrupted by us, or rolled back by the failure of another statement.
        .SQLITE_INTERRUPT, .SQLITE_ABORT,
    ]
}

/// A database is to get another class while a program has it open.
public struct DatabaseInUseError: LocalizedError, CustomStringConvertible, Sendable {
    public let path: String
    /// Programs that have it or its side files open, by name and number; empty where SQLite's locks
    /// say so and nothing tells who.
    public let users: [String]

    public var description: String {
        let whose = users.isEmpty ? "a program" : users.joined(separator: ", ")
        return "\(path) can't get another class while \(whose) has it open: close it there first"
    }

    public var errorDescription: String? { description }
}

extension FileProtectionType {
    /// The classes, by the names that options and attributes have for them.
    private static let classes: [FileProtectionType] = [
        .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication, .none,
        .completeWhenUserInactive,
    ]

    /// See `ProtectedDatabase.init(path:options:configuration:kind:)`.
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

    /// The option of `Data.write(to:options:)`.
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
