import WardControl
import WardFormat

/// What a simulated device is to be like.
public struct SimulatorSettings: Sendable {
    /// Of tests, so it needs no locked memory. Nil: the volume has none (state S0).
    public var passcode: String?
    /// From a lock to the loss of class A, on the manual clock.
    public var graceSeconds = 10.0
    /// Of new files where nothing else says.
    public var defaultClass = ProtectionClass.completeUntilFirstUserAuthentication
    /// Whether it starts unlocked, else before first unlock.
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

/// A simulated device as its process serves it.
public struct SimulatedMount: Equatable, Sendable {
    /// The directory that holds everything of it, and is removed with it.
    public var directory: String
    public var mountPoint: String
    public var socketPath: String
    /// Holds the passcode it was made with; nil without one.
    public var passcodeFile: String?
    /// The daemon's.
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

/// What crosses the socket to a simulator's process: a JSON object a line, an answer for each
/// request. The end of the socket is a request to end.
public enum SimulatorRequest: Sendable {
    /// The first: answered with a `SimulatedMount`.
    case start(SimulatorSettings)
    /// Kills the daemon, as a crash would.
    case kill
    /// Ends the daemon, where it still runs, and starts it again: before first unlock. Answered
    /// with a `SimulatedMount`.
    case restart
    /// Answered with `events`, an array: those of daemons that were ended or killed too.
    case events
    /// Answered with an `Audit`.
    case audit
    /// Answered when everything is gone.
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

/// Why a simulated device does not do what it was asked to.
public struct SimulatorError: Error, Sendable, CustomStringConvertible {
    /// What was tried: "cannot mount on /tmp/ward-test.x/files".
    public var what: String
    public var why: String
    /// The next step, where there is one to name.
    public var hint: String?
    /// The exit code that `ward` has for it (docs: `ward --help`).
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
