/// The errors of the interface `org.ward.Volume`.
public enum VolumeError: Error, Equatable, Sendable {
    /// `triesLeft` is the number of tries before the volume is disabled; nil without a limit.
    case wrongPasscode(triesLeft: Int?)
    case tryLater(seconds: Int)
    /// Too many wrong passcodes were given; only a recovery kit opens the volume.
    case disabled
    case noPasscodeSet
    case passcodeAlreadySet
    /// The call needs the current passcode, and none was given.
    case passcodeNeeded
    /// The effaceable key is gone.
    case erased
    case clockNotManual
    /// Another program is in the way.
    case busy(reason: String)
    /// The passcode is empty, too long or not UTF-8.
    case invalidPasscode(reason: String)
    case failed(what: String, why: String)
    /// The call works only while the volume is unlocked.
    case locked
    /// A trusted host opens no class before the first unlock.
    case beforeFirstUnlock
    /// The host is not trusted: it never was, or it was removed.
    case hostUnknown
    /// The host did not connect for 30 days.
    case hostExpired
    /// A host of that name is trusted already.
    case hostExists
    case tooManyHosts

    /// The error's name without the interface's name.
    public var name: String {
        switch self {
        case .wrongPasscode: "WrongPasscode"
        case .tryLater: "TryLater"
        case .disabled: "Disabled"
        case .noPasscodeSet: "NoPasscodeSet"
        case .passcodeAlreadySet: "PasscodeAlreadySet"
        case .passcodeNeeded: "PasscodeNeeded"
        case .erased: "Erased"
        case .clockNotManual: "ClockNotManual"
        case .busy: "Busy"
        case .invalidPasscode: "InvalidPasscode"
        case .failed: "Failed"
        case .locked: "Locked"
        case .beforeFirstUnlock: "BeforeFirstUnlock"
        case .hostUnknown: "HostUnknown"
        case .hostExpired: "HostExpired"
        case .hostExists: "HostExists"
        case .tooManyHosts: "TooManyHosts"
        }
    }

    public var parameters: JSONValue {
        switch self {
        case .wrongPasscode(let triesLeft):
            .object(present: [("triesLeft", triesLeft.map { .int(Int64($0)) })])
        case .tryLater(let seconds): .object([("seconds", .int(Int64(seconds)))])
        case .disabled, .noPasscodeSet, .passcodeAlreadySet, .passcodeNeeded, .erased,
            .clockNotManual, .locked, .beforeFirstUnlock, .hostUnknown, .hostExpired, .hostExists,
            .tooManyHosts:
            .object([])
        case .busy(let reason), .invalidPasscode(let reason):
            .object([("reason", .string(reason))])
        case .failed(let what, let why): .object([("what", .string(what)), ("why", .string(why))])
        }
    }

    /// Nil where the name is not an error of this interface.
    public init?(qualifiedName: String, parameters: JSONValue) {
        guard qualifiedName.hasPrefix(VolumeInterface.name + ".") else { return nil }
        let reason = parameters["reason"]?.stringValue ?? ""
        switch qualifiedName.dropFirst(VolumeInterface.name.count + 1) {
        case "WrongPasscode": self = .wrongPasscode(triesLeft: parameters["triesLeft"]?.intValue)
        case "TryLater": self = .tryLater(seconds: parameters["seconds"]?.intValue ?? 0)
        case "Disabled": self = .disabled
        case "NoPasscodeSet": self = .noPasscodeSet
        case "PasscodeAlreadySet": self = .passcodeAlreadySet
        case "PasscodeNeeded": self = .passcodeNeeded
        case "Erased": self = .erased
        case "ClockNotManual": self = .clockNotManual
        case "Busy": self = .busy(reason: reason)
        case "InvalidPasscode": self = .invalidPasscode(reason: reason)
        case "Failed":
            self = .failed(
                what: parameters["what"]?.stringValue ?? "",
                why: parameters["why"]?.stringValue ?? "")
        case "Locked": self = .locked
        case "BeforeFirstUnlock": self = .beforeFirstUnlock
        case "HostUnknown": self = .hostUnknown
        case "HostExpired": self = .hostExpired
        case "HostExists": self = .hostExists
        case "TooManyHosts": self = .tooManyHosts
        default: return nil
        }
    }
}
