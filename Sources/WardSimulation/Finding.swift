import WardControl
import WardFormat

/// A problem that an audit found.
public enum Finding: Sendable, Equatable, CustomStringConvertible {
    /// A side file of an SQLite database has another class than row I12 of the semantics says.
    case sideFileClass(database: Audit.File, sideFile: Audit.File, expected: ProtectionClass)
    /// The content of a file of class A or B lies in a file that stays readable while locked.
    case readableCopy(protected: Audit.File, copy: Audit.File)
    /// A file with content was deleted or replaced while no program could read it.
    case removedUnread(FileEvent)
    /// The file has a weaker class than a program asked for when that class was not available. Or
    /// its name belonged to a file of a stronger class; the event says which.
    case weakened(FileEvent, now: Audit.File)
    /// A file of class A, B or CX lies in a directory that a program synchronises. That program
    /// reads the file and copies it elsewhere. `tool` names it; nil where the directory is marked
    /// (`ward sync mark`).
    case protectedSynced(Audit.File, directory: String, tool: String?)
    /// An app that runs in the background has a class A file, which it can't read while the device
    /// is locked.
    case backgroundClassA(Audit.File, container: String, modes: [String])
    /// The class of a container's root differs from the class in its app's entitlement.
    case containerClass(
        container: String, path: String, protectionClass: ProtectionClass,
        entitlement: ProtectionClass)
    /// A protected file lies in a temporary directory, which is neither backed up nor kept.
    case protectedTemporary(Audit.File, directory: String)

    /// The name in options and JSON.
    public enum Kind: String, CaseIterable, Sendable {
        case protectedSynced = "protected-synced"
        case readableCopy = "readable-copy"
        case sideFileClass = "side-file-class"
        case backgroundClassA = "background-class-a"
        case containerClass = "container-class"
        case protectedTemporary = "protected-temporary"
        case removedUnread = "removed-unread"
        case weakened
    }

    public var kind: Kind {
        switch self {
        case .sideFileClass: .sideFileClass
        case .readableCopy: .readableCopy
        case .removedUnread: .removedUnread
        case .weakened: .weakened
        case .protectedSynced: .protectedSynced
        case .backgroundClassA: .backgroundClassA
        case .containerClass: .containerClass
        case .protectedTemporary: .protectedTemporary
        }
    }

    /// The path of the file or directory to act on, inside the volume; nil where it is not known.
    public var path: String? {
        switch self {
        case .sideFileClass(_, let file, _), .readableCopy(_, let file),
            .protectedSynced(let file, _, _), .backgroundClassA(let file, _, _),
            .protectedTemporary(let file, _), .weakened(_, let file):
            file.path
        case .removedUnread(let event): event.path
        case .containerClass(_, let path, _, _): path
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
        case .weakened(let event, let file):
            "\(file.path) is class \(file.protectionClass.letter) and "
                + (event.operation == "rename"
                    ? "took the place of a file of a stronger class: "
                    : "a stronger class was asked for and could not be had: ") + "\(event)"
        case .protectedSynced(let file, let directory, let tool):
            "\(file.path) of class \(file.protectionClass.letter) is in \(directory), which "
                + (tool.map { "\($0) synchronises" } ?? "is marked as synchronised")
        case .backgroundClassA(let file, let container, let modes):
            "\(file.path) is class A, and \(container) runs in the background "
                + "(\(modes.joined(separator: ", "))): while locked it can't be read"
        case .containerClass(let container, let path, let protectionClass, let entitlement):
            "\(path) is class \(protectionClass.letter), and the entitlement of \(container) says "
                + "class \(entitlement.letter)"
        case .protectedTemporary(let file, let directory):
            "\(file.path) of class \(file.protectionClass.letter) is in \(directory), which may be "
                + "emptied at any time and is not backed up"
        }
    }

    public var json: JSONValue {
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
        case .weakened(let event, let file):
            .object(present: [
                kind, ("path", .string(file.path)), ("file", file.json), ("event", event.json),
                text,
            ])
        case .protectedSynced(let file, let directory, let tool):
            .object(present: [
                kind, ("path", .string(file.path)), ("file", file.json),
                ("directory", .string(directory)), ("tool", tool.map { .string($0) }), text,
            ])
        case .backgroundClassA(let file, let container, let modes):
            .object(present: [
                kind, ("path", .string(file.path)), ("file", file.json),
                ("container", .string(container)), ("modes", .array(modes.map { .string($0) })),
                text,
            ])
        case .containerClass(let container, let path, let protectionClass, let entitlement):
            .object(present: [
                kind, ("path", .string(path)), ("container", .string(container)),
                ("protectionClass", .string(protectionClass.letter)),
                ("expected", .string(entitlement.letter)), text,
            ])
        case .protectedTemporary(let file, let directory):
            .object(present: [
                kind, ("path", .string(file.path)), ("file", file.json),
                ("directory", .string(directory)), text,
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
        case .weakened:
            guard let file = json["file"].flatMap(Audit.File.init(json:)),
                let event = json["event"].flatMap(FileEvent.init(json:))
            else { return nil }
            self = .weakened(event, now: file)
        case .protectedSynced:
            guard let file = json["file"].flatMap(Audit.File.init(json:)),
                let directory = json["directory"]?.stringValue
            else { return nil }
            self = .protectedSynced(file, directory: directory, tool: json["tool"]?.stringValue)
        case .backgroundClassA:
            guard let file = json["file"].flatMap(Audit.File.init(json:)),
                let container = json["container"]?.stringValue,
                let modes = json["modes"]?.arrayValue
            else { return nil }
            self = .backgroundClassA(
                file, container: container, modes: modes.compactMap(\.stringValue))
        case .containerClass:
            guard let container = json["container"]?.stringValue,
                let path = json["path"]?.stringValue,
                let protectionClass = json["protectionClass"]?.classValue,
                let entitlement = json["expected"]?.classValue
            else { return nil }
            self = .containerClass(
                container: container, path: path, protectionClass: protectionClass,
                entitlement: entitlement)
        case .protectedTemporary:
            guard let file = json["file"].flatMap(Audit.File.init(json:)),
                let directory = json["directory"]?.stringValue
            else { return nil }
            self = .protectedTemporary(file, directory: directory)
        case nil: return nil
        }
    }
}
