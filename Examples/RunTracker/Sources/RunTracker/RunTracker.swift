import DataProtection
import DataProtectionGRDB

/// Records runs, keeps the history of them, and has a few settings. Each of the three has the class
/// that fits when it is needed:
///
///     Tracks/    completeUnlessOpen (B)    written while the phone is locked in a pocket, read later
///     History/   complete (A)              where somebody was and when: only while unlocked
///     settings   …UntilFirstUser… (C)      needed in the background, too, after the first unlock
///
/// A run is recorded to a track file. Tracks of finished runs are taken into the history when that
/// can be opened.
public actor RunTracker {
    private let home: URL
    private var recorder: TrackRecorder?
    private var opening: Task<RunHistory, any Error>?

    /// Works in every state of the lock: launched by an alarm before the first unlock, an app must
    /// not need what it can't read.
    public init(home: URL) throws {
        self.home = home
        // New files take the class of their directory: SQLite's and those of open(2), too.
        for (name, protection) in [
            ("Tracks", FileProtectionType.completeUnlessOpen), ("History", .complete),
        ] {
            try FileManager.default.createDirectory(
                at: home.appendingPathComponent(name), withIntermediateDirectories: true,
                attributes: [.protectionKey: protection])
        }
        try TrackFile.finishAbandoned(in: home.appendingPathComponent("Tracks"))
    }

    // MARK: Recording

    /// Begins a run. Works in every state.
    public func start(at time: Date) throws {
        precondition(recorder == nil, "a run is under way")
        recorder = try TrackRecorder(
            in: home.appendingPathComponent("Tracks"), start: time)
    }

    /// Adds a point to the run. Works in every state; throws `CocoaError.fileWriteOutOfSpace` where
    /// there is no room, and can be called again.
    public func record(_ point: Point) throws { try recorder?.append(point) }

    /// Ends the run, and takes it into the history if that can be opened now.
    public func finish() async throws {
        try recorder?.finish()
        recorder = nil
        do {
            try await importTracks()
        } catch {
            // Locked is not an error here: `followUnlocks` comes back to it. Files say so by
            // Foundation's 257, a database by `locked` itself; this asks both.
            guard case .locked? = DataProtectionError(error) else { throw error }
        }
    }

    // MARK: History

    /// All runs, the latest first. Throws `DataProtectionError.locked` while it can't be opened:
    /// show a lock, not "no runs".
    public func runs() async throws -> [Run] { try await history().runs() }

    /// Takes finished tracks into the history. Throws, while they can't be read, what
    /// `DataProtectionError(_:)` takes for `locked`.
    public func importTracks() async throws {
        let history = try await history()
        for track in try TrackFile.finished(in: home.appendingPathComponent("Tracks")) {
            // An actor lets others in while it waits: another import may have been faster.
            guard FileManager.default.fileExists(atPath: track.url.path) else { continue }
            try await history.add(try track.run())
            // Deleted when the history has it, and not before: a track that could not be read
            // stays.
            do {
                try FileManager.default.removeItem(at: track.url)
            } catch CocoaError.fileNoSuchFile {}
        }
    }

    /// Takes tracks into the history after each unlock, until the task is cancelled. An app starts
    /// it at its launch.
    public func followUnlocks() async {
        for await event in ProtectedData(at: home).events
        where event.snapshot?.isAvailable == true {
            // Locked again already, a full disk: the next unlock will do.
            try? await importTracks()
        }
    }

    /// Opened when it is first needed: at launch that may not be possible. Whoever asks meanwhile
    /// waits for the same one; where that fails, it may have begun under a lock that is over by
    /// now, and is tried again.
    private func history() async throws -> RunHistory {
        while let attempt = opening {
            if let opened = try? await attempt.value { return opened }
            if opening == attempt { opening = nil }
        }
        let path = home.appendingPathComponent("History/runs.sqlite").path
        let task = Task { try await RunHistory(path: path) }
        opening = task
        do {
            return try await task.value
        } catch {
            if opening == task { opening = nil }
            throw error
        }
    }

    // MARK: Settings

    private var settingsURL: URL { home.appendingPathComponent("settings.json") }

    /// What was chosen, or the defaults where nothing was. Throws before the first unlock.
    public func settings() throws -> Settings {
        do {
            return try JSONDecoder().decode(
                Settings.self, from: Data(contentsOf: settingsURL))
        } catch CocoaError.fileReadNoSuchFile {
            // Only this error means that there are none. Whoever takes 257 (locked) for it and
            // saves the defaults has destroyed what was chosen.
            return Settings()
        }
    }

    public func save(_ settings: Settings) throws {
        try JSONEncoder().encode(settings).write(
            to: settingsURL,
            options: [.atomic, .completeFileProtectionUntilFirstUserAuthentication])
    }
}

public struct Settings: Codable, Equatable, Sendable {
    public enum Unit: String, Codable, Sendable { case kilometers, miles }

    public var unit = Unit.kilometers

    public init() {}
}
