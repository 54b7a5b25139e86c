import WardControl
import WardFormat

/// Something that an audit found and that should not be.
public enum Finding: Sendable, Equatable, CustomStringConvertible {
    /// A side file of an SQLite database has another class than row I12 of the semantics says.
    case sideFileClass(database: Audit.File, sideFile: Audit.File, expected: ProtectionClass)
    /// The content of a file of class A or B lies in a file that stays readable while locked.
    case readableCopy(protected: Audit.File, copy: Audit.File)
    /// A file with content was deleted, or replaced by another, while nobody could read it.
    case removedUnread(FileEvent)

    /// How options and JSON name it.
    public enum Kind: String, CaseIterable, Sendable {
        case sideFileClass = "side-file-class"
        case readableCopy = "readable-copy"
        case removedUnread = "removed-unread"
    }

    public var kind: Kind {
        switch self {
        case .sideFileClass: .sideFileClass
        case .readableCopy: .readableCopy
        case .removedUnread: .removedUnread
        }
    }

    public var description: String {
        switch self {
        case .sideFileClass(let database, let sideFile, let expected):
            "\(sideFile.path) is class \(sideFile.protectionClass.letter), but belongs to the "
                + "database \(database.path) of class \(database.protectionClass.letter): "
                + "it should be class \(expected.letter)"
        case .readableCopy(let protected, let copy):
            "\(copy.path) of class \(copy.protectionClass.letter) holds the content of "
                + "\(protected.path), class \(protected.protectionClass.letter): "
                + "it stays readable while locked"
        case .removedUnread(let event):
            "a file was \(event.operation == "rename" ? "replaced" : "deleted") while it could not "
                + "be read: \(event)"
        }
    }

    var json: JSONValue {
        let kind: (String, JSONValue?) = ("kind", .string(kind.rawValue))
        let text: (String, JSONValue?) = ("text", .string(description))
        return switch self {
        case .sideFileClass(let database, let sideFile, let expected):
            .object(present: [
                kind, ("path", .string(sideFile.path)), ("file", sideFile.json),
                ("other", database.json), ("expected", .string(expected.letter)), text,
            ])
        case .readableCopy(let protected, let copy):
            .object(present: [
                kind, ("path", .string(copy.path)), ("file", copy.json), ("other", protected.json),
                text,
            ])
        case .removedUnread(let event):
            .object(present: [
                kind, ("path", event.path.map { .string($0) }), ("event", event.json), text,
            ])
        }
    }

    init?(json: JSONValue) {
        switch json["kind"]?.stringValue.flatMap(Kind.init(rawValue:)) {
        case .sideFileClass:
            guard let file = json["file"].flatMap(Audit.File.init(json:)),
                let other = json["other"].flatMap(Audit.File.init(json:)),
                let expected = json["expected"]?.classValue
            else { return nil }
            self = .sideFileClass(database: other, sideFile: file, expected: expected)
        case .readableCopy:
            guard let file = json["file"].flatMap(Audit.File.init(json:)),
                let other = json["other"].flatMap(Audit.File.init(json:))
            else { return nil }
            self = .readableCopy(protected: other, copy: file)
        case .removedUnread:
            guard let event = json["event"].flatMap(FileEvent.init(json:)) else { return nil }
            self = .removedUnread(event)
        case nil: return nil
        }
    }
}
