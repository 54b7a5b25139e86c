import DataProtection

/// An SQLite database whose file and side files have one protection class, closed before its class
/// is locked and opened again after the unlock.
///
/// ```swift
/// let history = try await ProtectedDatabase(path: url.path, protection: .complete)
/// try await history.write { db in try Run(…).insert(db) }
/// let runs = try await history.read { db in try Run.fetchAll(db) }
/// ```
///
/// While its class can't be opened, every call throws `DataProtectionError.locked`, whatever SQLite
/// made of it (`SQLITE_IOERR`, `SQLITE_CANTOPEN`, `SQLITE_CORRUPT`…): nothing is damaged, nothing
/// is missing, come back later. Errors of other reasons stay GRDB's.
///
/// When the lock is announced no new access begins; what runs has four fifths of the grace period,
/// then its statements are interrupted; then the database is checkpointed and closed. The first
/// call after the unlock, or the unlock itself, opens it again. A transaction that the lock cuts
/// off is rolled back as a whole. Class B is only closed at a reboot: while locked it goes on as it
/// is.
///
/// The database is in WAL mode; nothing of it is mapped but the index, which has no user data
/// (`kind`); nothing of it is written to temporary files outside the volume. docs/databases.md has
/// the reasons.
///
/// Concurrency: any thread and task. As with GRDB's own, a write in a write is a mistake that ends
/// the program.
public final class ProtectedDatabase: Sendable {
    /// How it is opened.
    public enum Kind: Hashable, Sendable {
        /// GRDB's `DatabasePool`: reads beside a write; other processes may use the database too.
        case pool
        /// GRDB's `DatabaseQueue`: one access at a time, and nobody else. Nothing is mapped, so
        /// that even a reboot of the volume under a running program leads to errors only; and no
        /// second file has to be opened while locked, so it is what class B needs.
        case queue
    }

    public let path: String
    public let protection: FileProtectionType
    public let kind: Kind
    private let keeper: DatabaseKeeper
    /// Tells the keeper of locks and unlocks.
    private let following: Task<Void, Never>

    /// Opens the database at `path`, or makes it, with its class from the first byte on.
    ///
    /// One that is there and has another class is given this one, which needs that nobody else has
    /// it open (`setProtection(_:ofDatabaseAt:)`). `kind`: a queue for class B, else a pool, unless
    /// it is said.
    ///
    /// Throws `DataProtectionError.locked`, and makes nothing, where the class can't be opened now
    /// (a new database of class B can be made at any time); `DatabaseInUseError`; `CocoaError`,
    /// `featureUnsupported` off a ward volume among them, and GRDB's `DatabaseError`.
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
        // Registered before the first look: no lock in between is missed.
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

    /// The same, with the class in the options that Core Data takes for a store: the value of
    /// `NSPersistentStoreFileProtectionKey`, a `FileProtectionType` or its string. Without it:
    /// class C, as Core Data has it.
    ///
    /// Throws `DataProtectionError.unknownClass` as well.
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

    /// Whether the next access would be let in, as far as is known here: false between a lock and
    /// the unlock.
    public var isAvailable: Bool { keeper.isAvailable }

    /// Waits for what runs, checkpoints and closes for good. Later accesses throw GRDB's
    /// "connection is closed".
    public func close() throws {
        following.cancel()
        try keeper.close()
    }

    /// Gives a database that nobody has open, and its side files, a class.
    ///
    /// It is checkpointed first, so that all of it is in one file, whose class then changes in one
    /// step. Needs the old class and the new one to be available (row I8 of semantics.md); throws
    /// `DataProtectionError.locked` else, and `DatabaseInUseError` where any process, this one too,
    /// has it open.
    public static func setProtection(
        _ protection: FileProtectionType, ofDatabaseAt path: String
    ) throws {
        try DatabaseClassChange.perform(protection, path)
    }

    // MARK: Access

    /// Runs `value` in a read transaction.
    public func read<T>(_ value: (Database) throws -> T) throws -> T {
        try keeper.access { database in try database.read(value) }
    }

    /// Runs `value` in a read transaction.
    public func read<T: Sendable>(
        _ value: @escaping @Sendable (Database) throws -> T
    ) async throws -> T {
        try await keeper.access { database in try await database.read(value) }
    }

    /// Runs `updates` in a transaction, which is rolled back where it throws.
    public func write<T>(_ updates: (Database) throws -> T) throws -> T {
        try keeper.access { database in try database.write(updates) }
    }

    /// Runs `updates` in a transaction, which is rolled back where it throws.
    public func write<T: Sendable>(
        _ updates: @escaping @Sendable (Database) throws -> T
    ) async throws -> T {
        try await keeper.access { database in try await database.write(updates) }
    }

    /// GRDB's own object, for what is not above: `DatabaseMigrator.migrate(_:)`, backups,
    /// observations. It is closed at the next lock; the database is not closed while `body` runs,
    /// so be brief.
    public func withWriter<T>(_ body: (any DatabaseWriter) throws -> T) throws -> T {
        try keeper.access(body)
    }
}
