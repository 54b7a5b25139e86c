import DataProtection

/// A place of the runner, and its time.
public struct Point: Codable, Equatable, Sendable {
    public var time: Date
    /// In degrees, like `longitude`.
    public var latitude: Double
    public var longitude: Double

    public init(time: Date, latitude: Double, longitude: Double) {
        self.time = time
        self.latitude = latitude
        self.longitude = longitude
    }
}

/// Appends points to the file of the current run, one line of JSON for each.
final class TrackRecorder {
    private let recording: URL
    private let file: FileHandle
    /// The length of all complete lines, in bytes.
    private var length: UInt64 = 0

    init(in directory: URL, start: Date) throws {
        let name = "\(Int(start.timeIntervalSince1970))-\(UUID().uuidString)"
        recording = directory.appendingPathComponent(name + TrackFile.recording)
        // One call makes the file and keeps it open. While locked, a file of class B can be made,
        // but not opened: createFile(atPath:) and then FileHandle(forWritingTo:) would fail, as on
        // iOS. The class is that of the directory.
        let descriptor = open(
            recording.path, O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw CocoaError(
                .fileWriteUnknown,
                userInfo: [
                    NSFilePathErrorKey: recording.path,
                    NSUnderlyingErrorKey: NSError(domain: NSPOSIXErrorDomain, code: Int(errno)),
                ])
        }
        file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    }

    func append(_ point: Point) throws {
        var line = try JSONEncoder().encode(point)
        line.append(UInt8(ascii: "\n"))
        do {
            try file.write(contentsOf: line)
            // After this the point survives a power cut.
            try file.synchronize()
            length += UInt64(line.count)
        } catch {
            // A full disk may have cut the line. Cut it off, so that the file has complete lines
            // and the run can go on.
            try? file.truncate(atOffset: length)
            throw error
        }
    }

    func finish() throws {
        try file.close()
        try TrackFile.finish(recording)
    }
}
