import WardControl
import WardFormat

/// The properties of a simulated device.
public struct SimulatorSettings: Sendable {
    /// A test's passcode is not secret, so it needs no locked memory. Nil: the volume has none
    /// (state S0).
    public var passcode: String?
    /// The time from a lock to the eviction of class A, on the manual clock.
    public var graceSeconds = 10.0
    /// The class that new files get by default.
    public var defaultClass = ProtectionClass.completeUntilFirstUserAuthentication
    /// True: the device starts unlocked. False: before first unlock.
    public var startsUnlocked = true

    public init(passcode: String?) { self.passcode = passcode }

    var json: JSONValue {
        .object(present: [
            ("passcode", passcode.map { .string($0) }), ("graceSeconds", .double(graceSeconds)),
            ("defaultClass", .string(defaultClass.letter)), ("unlocked", .bool(startsUnlocked)),
        ])
    }

    init?(json: JSONValue) {
        guard let grace = json["graceSeconds"]?.doubleValue,
            let letter = json["defaultClass"]?.stringValue,
            let defaultClass = ProtectionClass(spelling: letter),
            let unlocked = json["unlocked"]?.boolValue
        else { return nil }
        passcode = json["passcode"]?.stringValue
        graceSeconds = grace
        self.defaultClass = defaultClass
        startsUnlocked = unlocked
    }
}

/// The places and the daemon of a simulated device that is served.
public struct SimulatedMount: Equatable, Sendable {
    /// The directory with all files of the device; it is removed with the device.
    public var directory: String
    public var mountPoint: String
    public var socketPath: String
    /// Holds the first passcode; nil without one.
    public var passcodeFile: String?
    /// The daemon's process.
    public var pid: Int

    public init(
        directory: String, mountPoint: String, socketPath: String, passcodeFile: String?, pid: Int
    ) {
        self.directory = directory
        self.mountPoint = mountPoint
        self.socketPath = socketPath
        self.passcodeFile = passcodeFile
        self.pid = pid
    }

    public var json: JSONValue {
        .object(present: [
            ("directory", .string(directory)), ("mountPoint", .string(mountPoint)),
            ("socket", .string(socketPath)), ("passcodeFile", passcodeFile.map { .string($0) }),
            ("pid", .int(Int64(pid))),
        ])
    }

    public init?(json: JSONValue) {
        guard let directory = json["directory"]?.stringValue,
            let mountPoint = json["mountPoint"]?.stringValue,
            let socket = json["socket"]?.stringValue, let pid = json["pid"]?.intValue
        else { return nil }
        self.init(
            directory: directory, mountPoint: mountPoint, socketPath: socket,
            passcodeFile: json["passcodeFile"]?.stringValue, pid: pid)
    }
}

/// A request over the socket to a simulator's process: JSON, one object per line, one answer for
/// each request. Closing the socket ends the device.
public enum SimulatorRequest: Sendable {
    /// The first request: answered with a `SimulatedMount`.
    case start(SimulatorSettings)
    /// Kills the daemon as a crash would.
    case kill
    /// Ends the daemon where it still runs, and starts it again, before first unlock. Answered with
    /// a `SimulatedMount`.
    case restart
    /// Answered with the array `events`, which includes events of earlier daemons.
    case events
    /// Answered with an `Audit`.
    case audit
    /// Answered when all files of the device are removed.
    case end

    public var json: JSONValue {
        let (name, settings): (String, JSONValue?) =
            switch self {
            case .start(let settings): ("start", settings.json)
            case .kill: ("kill", nil)
            case .restart: ("restart", nil)
            case .events: ("events", nil)
            case .audit: ("audit", nil)
            case .end: ("end", nil)
            }
        return .object(present: [("do", .string(name)), ("settings", settings)])
    }

    public init?(json: JSONValue) {
        switch json["do"]?.stringValue {
        case "start":
            guard let settings = json["settings"].flatMap(SimulatorSettings.init(json:)) else {
                return nil
            }
            self = .start(settings)
        case "kill": self = .kill
        case "restart": self = .restart
        case "events": self = .events
        case "audit": self = .audit
        case "end": self = .end
        default: return nil
        }
    }
}

/// The reason why a simulated device can't do a request.
public struct SimulatorError: Error, Sendable, CustomStringConvertible {
    /// The step that failed: "cannot mount on /tmp/ward-test.x/files".
    public var what: String
    public var why: String
    /// The next step for the user, where there is one.
    public var hint: String?
    /// The matching exit code of `ward` (docs: `ward --help`).
    public var exitCode: Int32

    public init(_ what: String, why: String, hint: String? = nil, exitCode: Int32 = 70) {
        self.what = what
        self.why = why
        self.hint = hint
        self.exitCode = exitCode
    }

    public var description: String {
        "\(what): \(why)" + (hint.map { "\nhint: \($0)" } ?? "")
    }

    public var json: JSONValue {
        .object([
            (
                "error",
                .object(present: [
                    ("what", .string(what)), ("why", .string(why)),
                    ("hint", hint.map { .string($0) }), ("exitCode", .int(Int64(exitCode))),
                ])
            )
        ])
    }

    init?(json: JSONValue) {
        guard let error = json["error"], let what = error["what"]?.stringValue,
            let why = error["why"]?.stringValue
        else { return nil }
        self.init(
            what, why: why, hint: error["hint"]?.stringValue,
            exitCode: Int32(truncatingIfNeeded: error["exitCode"]?.intValue ?? 70))
    }
}
