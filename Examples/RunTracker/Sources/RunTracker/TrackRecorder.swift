import DataProtection

/// Where a runner was.
public struct Point: Codable, Equatable, Sendable {
    public var time: Date
    /// In degrees.
    public var latitude: Double
    public var longitude: Double

    public init(time: Date, latitude: Double, longitude: Double) {
        self.time = time
        self.latitude = latitude
        self.longitude = longitude
    }
}

/// Appends points to the file of the run that is under way, a line of JSON each.
final class TrackRecorder {
    private let recording: URL
    private let file: FileHandle
    /// Bytes of whole lines.
    private var length: UInt64 = 0

    init(in directory: URL, start: Date) throws {
        let name = "\(Int(start.timeIntervalSince1970))-\(UUID().uuidString)"
        recording = directory.appendingPathComponent(name + TrackFile.recording)
        // Made and kept open in one call. While locked a file of class B can be made, but not
        // opened: createFile(atPath:) and then FileHandle(forWritingTo:) would fail, as on iOS. Its
        // class is the directory's.
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
            // What was recorded is there after a power cut.
            try file.synchronize()
            length += UInt64(line.count)
        } catch {
            // A full disk may have taken half of it. The file stays whole lines, and the run can go
            // on.
            try? file.truncate(atOffset: length)
            throw error
        }
    }

    func finish() throws {
        try file.close()
        try TrackFile.finish(recording)
    }
}
