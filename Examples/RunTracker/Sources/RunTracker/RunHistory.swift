import DataProtection
import DataProtectionGRDB

/// One run in the history.
public struct Run: Codable, Equatable, Sendable, FetchableRecord, PersistableRecord {
    /// The name of its track file, so that a track that is imported twice makes one run.
    public var id: String
    /// The time of the first point; nil for a run without points.
    public var start: Date?
    public var seconds: Double
    public var meters: Double
    public var points: Int

    init(id: String, points: [Point]) {
        self.id = id
        self.points = points.count
        start = points.first?.time
        seconds = (points.last?.time ?? .distantPast)
            .timeIntervalSince(points.first?.time ?? .distantPast)
        meters = zip(points, points.dropFirst()).reduce(0) { $0 + distance($1.0, $1.1) }
    }
}

/// The database of all runs. It closes before a lock and opens after the unlock. In between every
/// call throws `DataProtectionError.locked`.
struct RunHistory: Sendable {
    private let database: ProtectedDatabase

    init(path: String) async throws {
        database = try await ProtectedDatabase(path: path, protection: .complete)
        // GRDB's own object, for calls that ProtectedDatabase does not have.
        try database.withWriter { writer in
            var migrator = DatabaseMigrator()
            migrator.registerMigration("runs") { db in
                try db.create(table: "run") { table in
                    table.primaryKey("id", .text)
                    table.column("start", .datetime)
                    table.column("seconds", .double).notNull()
                    table.column("meters", .double).notNull()
                    table.column("points", .integer).notNull()
                }
            }
            try migrator.migrate(writer)
        }
    }

    func add(_ run: Run) async throws {
        try await database.write { db in try run.insert(db, onConflict: .ignore) }
    }

    func runs() async throws -> [Run] {
        try await database.read { db in try Run.order(Column("start").desc).fetchAll(db) }
    }
}

/// The distance over the ground in meters. The earth is taken as a sphere.
private func distance(_ from: Point, _ to: Point) -> Double {
    let degree = Double.pi / 180
    let latitudes = (to.latitude - from.latitude) * degree / 2
    let longitudes = (to.longitude - from.longitude) * degree / 2
    let square =
        sin(latitudes) * sin(latitudes) + cos(from.latitude * degree)
        * cos(to.latitude * degree) * sin(longitudes) * sin(longitudes)
    return 2 * 6_371_000 * asin(min(1, square.squareRoot()))
}
