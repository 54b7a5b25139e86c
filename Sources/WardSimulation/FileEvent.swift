import WardControl
import WardFormat

/// An action on a file that the file's class made notable or refused.
public struct FileEvent: Sendable, Equatable, CustomStringConvertible {
    /// The command name, as in `/proc/PID/comm`; nil where the process was gone.
    public var program: String?
    public var pid: Int?
    public var uid: Int?
    /// Path inside the volume; nil where different files were counted together.
    public var path: String?
    public var protectionClass: ProtectionClass?
    /// The operation: `open`, `read`, `write`, `create`, `unlink`, `rename`, ….
    public var operation: String?
    /// The lock state at the time, as `ward status` names it.
    public var state: String
    /// The time as RFC 3339 writes it.
    public var time: String
    /// The number of equal events in a row.
    public var count = 1

    /// Returns nil where the event has no lock state: it is not about a file.
    public init?(_ event: ControlEvent) {
        guard let state = event.state else { return nil }
        program = event.program
        pid = event.pid
        uid = event.uid
        path = event.path
        protectionClass = event.protectionClass.flatMap(ProtectionClass.init(spelling:))
        operation = event.operation
        self.state = state
        time = event.time
        count = event.count ?? 1
    }

    /// "cat (pid 812): open /diary/monday, class A, while locked, 12 times".
    public var description: String {
        let who = (program ?? "a program that is gone") + (pid.map { " (pid \($0))" } ?? "")
        let what = [operation, path ?? "several files"].compactMap(\.self).joined(separator: " ")
        let letter = protectionClass.map { ", class \($0.letter)" } ?? ""
        let times = count > 1 ? ", \(count) times" : ""
        return "\(who): \(what)\(letter), while \(FileEvent.words(of: state))\(times)"
    }

    private static func words(of state: String) -> String {
        switch state {
        case "noPasscode": "no passcode is set"
        case "beforeFirstUnlock": "before first unlock"
        case "lockedWithHost": "locked, and open for a trusted host"
        default: state
        }
    }

    var json: JSONValue {
        .object(present: [
            ("program", program.map { .string($0) }), ("pid", pid.map { .int(Int64($0)) }),
            ("uid", uid.map { .int(Int64($0)) }), ("path", path.map { .string($0) }),
            ("protectionClass", protectionClass.map { .string($0.letter) }),
            ("operation", operation.map { .string($0) }), ("state", .string(state)),
            ("time", .string(time)), ("count", .int(Int64(count))),
        ])
    }

    init?(json: JSONValue) {
        guard let state = json["state"]?.stringValue, let time = json["time"]?.stringValue else {
            return nil
        }
        program = json["program"]?.stringValue
        pid = json["pid"]?.intValue
        uid = json["uid"]?.intValue
        path = json["path"]?.stringValue
        protectionClass = json["protectionClass"]?.classValue
        operation = json["operation"]?.stringValue
        self.state = state
        self.time = time
        count = json["count"]?.intValue ?? 1
    }
}
