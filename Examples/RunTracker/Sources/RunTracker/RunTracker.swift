import DataProtection
import DataProtectionGRDB

/// Records runs, keeps their history, and has a few settings. Each of the three has the class that
/// fits the time when it is needed:
///
///     Tracks/    completeUnlessOpen (B)    written while the phone is locked, read later
///     History/   complete (A)              places and times of a person: only while unlocked
///     settings   …UntilFirstUser… (C)      needed in the background, too, after the first unlock
///
/// A run is recorded to a track file. Finished tracks are imported into the history when it can be
/// opened.
public actor RunTracker {
    private let home: URL
    private var recorder: TrackRecorder?
    private var opening: Task<RunHistory, any Error>?

    /// Works in every state of the lock. An alarm may launch the app before the first unlock, so
    /// the start must not need a file that can't be read.
    public init(home: URL) throws {
        self.home = home
        // New files take the class of their directory, also those of SQLite and of open(2).
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

    /// Adds a point to the run. Works in every state. Throws `CocoaError.fileWriteOutOfSpace` where
    /// the disk is full, and can then be called again.
    public func record(_ point: Point) throws { try recorder?.append(point) }

    /// Ends the run, and imports its track if the history can be opened now.
    public func finish() async throws {
        try recorder?.finish()
        recorder = nil
        do {
            try await importTracks()
        } catch {
            // Locked is not an error here: `followUnlocks` imports the track later. Files report a
            // lock as Foundation's 257, a database as `locked`; this recognises both.
            guard case .locked? = DataProtectionError(error) else { throw error }
        }
    }

    // MARK: History

    /// All runs, the latest first. Throws `DataProtectionError.locked` while the history can't be
    /// opened. Then show a lock, not "no runs".
    public func runs() async throws -> [Run] { try await history().runs() }

    /// Imports finished tracks into the history. While tracks or history can't be read, it throws
    /// an error that `DataProtectionError(_:)` recognises as `locked`.
    public func importTracks() async throws {
        let history = try await history()
        for track in try TrackFile.finished(in: home.appendingPathComponent("Tracks")) {
            // While this actor waits, another import may run and be faster.
            guard FileManager.default.fileExists(atPath: track.url.path) else { continue }
            try await history.add(try track.run())
            // Deleted only when the history has the run, so a track that could not be read stays.
            do {
                try FileManager.default.removeItem(at: track.url)
            } catch CocoaError.fileNoSuchFile {}
        }
    }

    /// Imports tracks after each unlock, until the task is cancelled. An app starts this at its
    /// launch.
    public func followUnlocks() async {
        for await event in ProtectedData(at: home).events
        where event.snapshot?.isAvailable == true {
            // The volume may be locked again, or the disk full: the next unlock tries again.
            try? await importTracks()
        }
    }

    /// Opens the history when it is first needed, because at launch that may not be possible. Calls
    /// in the meantime wait for the same attempt. A failed attempt is made again: a lock may have
    /// caused it that is over by now.
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

    /// The saved settings, or the defaults where none were saved. Throws before the first unlock.
    public func settings() throws -> Settings {
        do {
            return try JSONDecoder().decode(
                Settings.self, from: Data(contentsOf: settingsURL))
        } catch CocoaError.fileReadNoSuchFile {
            // Only this error means that there are no settings. Treating 257 (locked) in the same
            // way, and then saving the defaults, would destroy the user's settings.
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
