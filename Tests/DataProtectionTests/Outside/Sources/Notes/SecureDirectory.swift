import DataProtection

/// As in Apple's sample of this name: a directory of class complete below the app's documents.
public struct SecureDirectory {
    public let url: URL

    public init(named name: String) throws {
        let documents = try FileManager.default.url(
            for: .documentDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        try self.init(named: name, in: documents)
    }

    /// For tests, which have their own documents directory.
    public init(named name: String, in documents: URL) throws {
        url = documents.appendingPathComponent(name, isDirectory: true)
        try FileManager.default.createDirectory(
            at: url, withIntermediateDirectories: true,
            attributes: [.protectionKey: FileProtectionType.complete])
    }
}
