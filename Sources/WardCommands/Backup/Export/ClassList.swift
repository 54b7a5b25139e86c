import Glibc
import WardControl
import WardFormat
import WardSystem

/// The list of classes beside exported files: `ward-export.jsonl`, one JSON object a line.
///
/// ```
/// {"format":"ward export","version":1,"volume":"UUID","from":"/","complete":true}
/// {"path":"diary","class":"A"}
/// {"path":"diary/monday","class":"A"}
/// ```
/// Paths are relative to the directory `files` beside the list; its own path is empty. A path that
/// is not UTF-8 is in `pathBase64` instead (base64url without padding, RFC 4648 §5).
///
/// The field `from` is the exported directory of the volume; `complete` is false until the export
/// is complete. A list with only the first line belongs to an export that runs or was interrupted.
/// Files and directories that are not listed get the class of their new place.
struct ClassList {
    static let fileName = "ward-export.jsonl"
    static let formatName = "ward export"
    static let version = 1
    private static let longestLine = 1 << 16

    struct Head: Equatable {
        var volume: String
        var from: String
        var isComplete: Bool

        /// The line has the same length for complete and incomplete exports, so that it can be
        /// overwritten.
        var line: [UInt8] {
            let json = JSONValue.object([
                ("format", .string(formatName)), ("version", .int(Int64(version))),
                ("volume", .string(volume)), ("from", .string(from)),
                ("complete", .bool(isComplete)),
            ])
            return json.bytes + (isComplete ? [UInt8(ascii: " ")] : []) + [UInt8(ascii: "\n")]
        }
    }

    var head: Head
    private(set) var classes: [[UInt8]: ProtectionClass] = [:]

    subscript(path: [UInt8]) -> ProtectionClass? { classes[path] }

    static func line(_ path: [UInt8], _ protectionClass: ProtectionClass) -> JSONValue {
        let text = String(decoding: path, as: UTF8.self)
        let name: (String, JSONValue) =
            Array(text.utf8) == path
            ? ("path", .string(text)) : ("pathBase64", .string(Base64URL.encode(path)))
        return .object([name, ("class", .string(protectionClass.letter))])
    }

    /// A short description of an error in a list.
    struct Mistake: Error {
        var reason: String
    }

    /// Reads the first line; nil where the file is missing or no list. Throws `Errno` and
    /// `Mistake`.
    static func head(_ path: String) throws -> Head? {
        let number: Int32
        do throws(Errno) {
            number = try Syscall.open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        } catch {
            if error == .noSuchFileOrDirectory { return nil }
            throw error
        }
        let file = OwnedDescriptor(adopting: number)
        var bytes = [UInt8](repeating: 0, count: longestLine)
        let count = try Syscall.pread(file.rawValue, &bytes, bytes.count, at: 0)
        return try head(in: bytes[0..<count].prefix { $0 != UInt8(ascii: "\n") })
    }

    private static func head(in line: ArraySlice<UInt8>) throws(Mistake) -> Head? {
        guard let json = try? JSONParser.parse(Array(line)),
            json["format"]?.stringValue == formatName
        else { return nil }
        guard let found = json["version"]?.intValue, found <= version else {
            throw Mistake(reason: "it was made by a newer version of ward")
        }
        guard let volume = json["volume"]?.stringValue, let from = json["from"]?.stringValue,
            let isComplete = json["complete"]?.boolValue
        else { throw Mistake(reason: "its first line is damaged") }
        return Head(volume: volume, from: from, isComplete: isComplete)
    }

    /// Reads the whole list. Throws `Errno` and `Mistake`.
    init(reading path: String) throws {
        let file = try OwnedDescriptor(opening: path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        var pending: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 18)
        var number = 0
        var head: Head?
        while true {
            let count = try Syscall.read(file.rawValue, &buffer, buffer.count)
            if count == 0 { break }
            pending += buffer[0..<count]
            var start = 0
            while let end = pending[start...].firstIndex(of: UInt8(ascii: "\n")) {
                number += 1
                let line = pending[start..<end]
                start = end + 1
                if number == 1 {
                    head = try ClassList.head(in: line)
                } else if !line.isEmpty {
                    let (path, protectionClass) = try ClassList.entry(line, number)
                    classes[path] = protectionClass
                }
            }
            pending.removeFirst(start)
            if pending.count > ClassList.longestLine {
                throw Mistake(reason: "line \(number + 1) has no end")
            }
        }
        guard let head else { throw Mistake(reason: "it is no list of classes") }
        guard pending.isEmpty else { throw Mistake(reason: "it was cut off") }
        self.head = head
    }

    private static func entry(
        _ line: ArraySlice<UInt8>, _ number: Int
    ) throws(Mistake) -> ([UInt8], ProtectionClass) {
        guard let json = try? JSONParser.parse(Array(line)),
            let path = json["path"]?.stringValue.map({ Array($0.utf8) })
                ?? json["pathBase64"]?.stringValue.flatMap({ Base64URL.decode($0) })
        else { throw Mistake(reason: "line \(number) is not one of a path and its class") }
        guard let text = json["class"]?.stringValue, let value = ProtectionClass(spelling: text)
        else { throw Mistake(reason: "line \(number) names no class that there is") }
        return (path, value)
    }
}
