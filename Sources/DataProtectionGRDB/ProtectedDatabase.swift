import DataProtection

/// An SQLite database whose file and side files have one protection class. It closes before that
/// class is locked, and opens again after the unlock.
///
/// ```swift
/// let history = try await ProtectedDatabase(path: url.path, protection: .complete)
/// try await history.write { db in try Run(…).insert(db) }
/// let runs = try await history.read { db in try Run.fetchAll(db) }
/// ```
///
/// While the class can't be opened, every call throws `DataProtectionError.locked`, for any error
/// code of SQLite's (`SQLITE_IOERR`, `SQLITE_CANTOPEN`, `SQLITE_CORRUPT`…). The database is not
/// damaged; try again after the unlock. For other reasons the calls throw GRDB's errors.
///
/// When a lock is announced, no new access begins. Running accesses have four fifths of the grace
/// period; then their statements are interrupted. Then the database is checkpointed and closed. The
/// unlock, or the first call after it, opens it again. A transaction that the lock interrupts is
/// rolled back as a whole. A database of class B closes only at a reboot, and stays usable while
/// locked.
///
/// The database is in WAL mode. Only the WAL's index is mapped, which has no user data (see
/// `kind`). No temporary file is written outside the volume. docs/databases.md has the reasons.
///
/// Concurrency: any thread or task may call. As in GRDB, a write inside a write is a mistake and
/// ends the program.
public final class ProtectedDatabase: Sendable {
    /// The kind of GRDB object that opens the database.
    public enum Kind: Hashable, Sendable {
        /// GRDB's `DatabasePool`: reads run beside a write, and other processes may use the
        /// database.
        case pool
        /// GRDB's `DatabaseQueue`: one access at a time, and no other process. No file is mapped,
        /// so even a reboot of the volume under a running program causes only errors. No second
        /// file is opened while locked, which class B needs.
        case queue
    }

    /// The path of the database file.
    public let path: String
    /// The class of the database and its side files.
    public let protection: FileProtectionType
    /// The kind of GRDB object, which the initializer chose or was given.
    public let kind: Kind
    private let keeper: DatabaseKeeper
    /// Passes locks and unlocks to the keeper.
    private let following: Task<Void, Never>

    /// Opens the database at `path`, or makes it with its class from the first byte on.
    ///
    /// An existing database of another class gets this class, which requires that no program has it
    /// open (`setProtection(_:ofDatabaseAt:)`). By default `kind` is a queue for class B, and a
    /// pool for the other classes.
    ///
    /// - Throws: `DataProtectionError.locked` where the class can't be opened now; then no file is
    ///   made. (A new database of class B can be made at any time.) `DatabaseInUseError`;
    ///   `CocoaError`, among them `featureUnsupported` off a ward volume; GRDB's `DatabaseError`.
    public init(
        path: String, protection: FileProtectionType,
        configuration: Configuration = Configuration(),
        kind: Kind? = nil
    ) async throws {
        let kind = kind ?? (protection == .completeUnlessOpen ? .queue : .pool)
        let store = DatabaseStore(
            path: path, protection: protection, kind: kind, configuration: configuration)
        self.path = path
        self.protection = protection
        self.kind = kind
        let keeper = DatabaseKeeper(store)
        self.keeper = keeper
        // Registered before the first look, so that no lock in between is missed.
        let events = store.volume.events
        following = Task {
            for await event in events { keeper.follow(event) }
        }
        do {
            try await keeper.openFirst()
        } catch {
            following.cancel()
            throw error
        }
    }

    /// Opens or makes a database, with the class in the options of a Core Data store. The value of
    /// `NSPersistentStoreFileProtectionKey` is a `FileProtectionType` or its string. Without the
    /// key the class is C, as in Core Data.
    ///
    /// - Throws: also `DataProtectionError.unknownClass`.
    public convenience init(
        path: String, options: [String: any Sendable],
        configuration: Configuration = Configuration(),
        kind: Kind? = nil
    ) async throws {
        try await self.init(
            path: path, protection: FileProtectionType(storeOptions: options),
            configuration: configuration, kind: kind)
    }

    deinit {
        following.cancel()
        keeper.abandon()
    }

    /// Whether the database is open for the next access: false between a lock and the unlock.
    public var isAvailable: Bool { keeper.isAvailable }

    /// Waits for running accesses, checkpoints and closes for good. Later accesses throw GRDB's
    /// "Connection is closed".
    public func close() throws {
        following.cancel()
        try keeper.close()
    }

    /// Changes the class of a database and its side files. No program may have it open.
    ///
    /// A checkpoint first brings the whole database into one file, whose class then changes in one
    /// step.
    ///
    /// - Throws: `DataProtectionError.locked` unless the old class and the new one are available
    ///   (row I8 of semantics.md). `DatabaseInUseError` where a process, this one included, has it
    ///   open.
    public static func setProtection(
        _ protection: FileProtectionType, ofDatabaseAt path: String
    ) throws {
        try DatabaseClassChange.perform(protection, path)
    }

    // MARK: Access

    /// Runs `value` in a read transaction. Throws `DataProtectionError.locked` while locked.
    public func read<T>(_ value: (Database) throws -> T) throws -> T {
        try keeper.access { database in try database.read(value) }
    }

    /// Runs `value` in a read transaction. Throws `DataProtectionError.locked` while locked.
    public func read<T: Sendable>(
        _ value: @escaping @Sendable (Database) throws -> T
    ) async throws -> T {
        try await keeper.access { database in try await database.read(value) }
    }

    /// Runs `updates` in a transaction, which is rolled back if it throws. Throws
    /// `DataProtectionError.locked` while locked.
    public func write<T>(_ updates: (Database) throws -> T) throws -> T {
        try keeper.access { database in try database.write(updates) }
    }

    /// Runs `updates` in a transaction, which is rolled back if it throws. Throws
    /// `DataProtectionError.locked` while locked.
    public func write<T: Sendable>(
        _ updates: @escaping @Sendable (Database) throws -> T
    ) async throws -> T {
        try await keeper.access { database in try await database.write(updates) }
    }

    /// Gives GRDB's own object to `body`, for calls that are not above:
    /// `DatabaseMigrator.migrate(_:)`, backups, observations. A lock waits for `body` before it
    /// closes the object, so be brief.
    public func withWriter<T>(_ body: (any DatabaseWriter) throws -> T) throws -> T {
        try keeper.access(body)
    }
}
