import WardControl
import WardFormat

/// The files of a volume and what is wrong with their classes.
public struct Audit: Sendable {
    /// A file and its class.
    public struct File: Sendable, Equatable {
        /// Path inside the volume; begins with "/".
        public var path: String
        public var protectionClass: ProtectionClass
        public var sizeBytes: Int

        public init(path: String, protectionClass: ProtectionClass, sizeBytes: Int) {
            self.path = path
            self.protectionClass = protectionClass
            self.sizeBytes = sizeBytes
        }

        var json: JSONValue {
            .object([
                ("path", .string(path)), ("protectionClass", .string(protectionClass.letter)),
                ("size", .int(Int64(sizeBytes))),
            ])
        }

        init?(json: JSONValue) {
            guard let path = json["path"]?.stringValue,
                let protectionClass = json["protectionClass"]?.classValue,
                let size = json["size"]?.intValue
            else { return nil }
            self.init(path: path, protectionClass: protectionClass, sizeBytes: size)
        }
    }

    /// The lock state during the audit, as `ward status` names it.
    public var state: String
    /// All regular files, sorted by path.
    public var files: [File] = []
    /// Problems, grouped by kind.
    public var findings: [Finding] = []
    /// Every refusal so far. It is not a finding: a test may well try an access that must be
    /// refused.
    public var denials: [FileEvent] = []
    /// Files that could not be read in this state: whether they are copies or databases is unknown.
    public var unread: [String] = []
    /// Files and directories that could not be looked at, each with the reason.
    public var unreachable: [String] = []
    /// The directories that are marked as synchronised.
    public var marked: [String] = []

    public init(state: String) { self.state = state }

    /// The files of one class.
    public func files(of protectionClass: ProtectionClass) -> [File] {
        files.filter { $0.protectionClass == protectionClass }
    }

    /// The files in a directory and below it. `directory` is inside the volume, with or without "/"
    /// at either end.
    public func files(under directory: String) -> [File] {
        let prefix = "/" + directory.split(separator: "/").map { $0 + "/" }.joined()
        return files.filter { $0.path.hasPrefix(prefix) }
    }

    /// The files in a directory and below it that are not of this class.
    public func files(under directory: String, notOf protectionClass: ProtectionClass) -> [File] {
        files(under: directory).filter { $0.protectionClass != protectionClass }
    }

    public var json: JSONValue {
        .object([
            ("state", .string(state)),
            ("files", .array(files.map(\.json))), ("findings", .array(findings.map(\.json))),
            ("denials", .array(denials.map(\.json))),
            ("unread", .array(unread.map { .string($0) })),
            ("unreachable", .array(unreachable.map { .string($0) })),
            ("marked", .array(marked.map { .string($0) })),
        ])
    }

    /// Returns nil where a field is missing.
    public init?(json: JSONValue) {
        guard let state = json["state"]?.stringValue, let files = json["files"]?.arrayValue,
            let findings = json["findings"]?.arrayValue, let denials = json["denials"]?.arrayValue,
            let unread = json["unread"]?.arrayValue
        else { return nil }
        self.init(state: state)
        self.files = files.compactMap(File.init(json:))
        self.findings = findings.compactMap(Finding.init(json:))
        self.denials = denials.compactMap(FileEvent.init(json:))
        self.unread = unread.compactMap(\.stringValue)
        unreachable = (json["unreachable"]?.arrayValue ?? []).compactMap(\.stringValue)
        marked = (json["marked"]?.arrayValue ?? []).compactMap(\.stringValue)
    }
}

extension JSONValue {
    /// A class in any of its spellings.
    var classValue: ProtectionClass? { stringValue.flatMap(ProtectionClass.init(spelling:)) }
}
