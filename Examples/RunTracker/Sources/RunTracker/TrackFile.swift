import DataProtection

/// A recorded run that is not in the history yet. Its name says whether it is finished, because
/// renaming works in every state.
struct TrackFile {
    static let recording = ".recording"
    static let finished = ".track"

    let url: URL

    /// The tracks to import into the history, the oldest first.
    static func finished(in directory: URL) throws -> [TrackFile] {
        try urls(in: directory, finished).map(TrackFile.init)
    }

    /// Finishes the tracks of runs that ended with the app.
    static func finishAbandoned(in directory: URL) throws {
        for url in try urls(in: directory, recording) { try finish(url) }
    }

    static func finish(_ recording: URL) throws {
        let name = recording.lastPathComponent.dropLast(TrackFile.recording.count)
        try FileManager.default.moveItem(
            at: recording,
            to: recording.deletingLastPathComponent().appendingPathComponent(name + finished))
    }

    private static func urls(in directory: URL, _ suffix: String) throws -> [URL] {
        try FileManager.default.contentsOfDirectory(
            at: directory, includingPropertiesForKeys: nil
        ).filter { $0.lastPathComponent.hasSuffix(suffix) }
            .sorted { $0.lastPathComponent < $1.lastPathComponent }
    }

    /// Reads the track. Works only while unlocked.
    func run() throws -> Run {
        let lines = try Data(contentsOf: url).split(separator: UInt8(ascii: "\n"))
        // A power cut may have left half a line at the end.
        let points = lines.compactMap { try? JSONDecoder().decode(Point.self, from: $0) }
        return Run(id: url.lastPathComponent, points: points)
    }
}
