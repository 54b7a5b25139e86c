import DataProtection

/// Keeps notes, as an app for iOS would.
public struct NoteStore {
    public enum Problem: Error, Equatable {
        /// The caller should try again when the device is unlocked.
        case locked
    }

    private let directory: SecureDirectory

    public init() throws { directory = try SecureDirectory(named: "Notes") }

    public init(in documents: URL) throws {
        directory = try SecureDirectory(named: "Notes", in: documents)
    }

    public func save(_ text: String, as name: String) throws {
        let url = directory.url.appendingPathComponent(name)
        try Data(text.utf8).write(to: url, options: [.atomic, .completeFileProtection])
    }

    public func note(named name: String) throws -> String {
        do {
            return try String(
                contentsOf: directory.url.appendingPathComponent(name), encoding: .utf8)
        } catch CocoaError.fileReadNoPermission {
            throw Problem.locked
        }
    }

    public func protection(ofNoteNamed name: String) throws -> FileProtectionType? {
        let path = directory.url.appendingPathComponent(name).path
        return try FileManager.default.attributesOfItem(atPath: path)[.protectionKey]
            as? FileProtectionType
    }
}
