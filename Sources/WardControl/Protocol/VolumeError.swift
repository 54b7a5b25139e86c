/// The errors of the interface `org.ward.Volume`.
public enum VolumeError: Error, Equatable, Sendable {
    /// `triesLeft` is the number of tries before the volume is disabled; nil without a limit.
    case wrongPasscode(triesLeft: Int?)
    case tryLater(seconds: Int)
    case refused(Refusal)
    case clockNotManual
    /// Another program is in the way.
    case busy(reason: String)
    /// The passcode is empty, too long or not UTF-8.
    case invalidPasscode(reason: String)
    case failed(what: String, why: String)
    /// The call works only while the volume is unlocked.
    case locked
    /// The kernel does not drop pages when it is told to, so no class that a lock closes is opened.
    case kernelKeepsPages(reason: String)

    /// The errors of the keybag that have no parameters, by their names in the interface.
    public enum Refusal: String, CaseIterable, Sendable {
        /// Too many wrong passcodes were given; only a recovery kit opens the volume.
        case disabled = "Disabled"
        case noPasscodeSet = "NoPasscodeSet"
        case passcodeAlreadySet = "PasscodeAlreadySet"
        /// The call needs the current passcode, and none was given.
        case passcodeNeeded = "PasscodeNeeded"
        /// The effaceable key is gone.
        case erased = "Erased"
        /// A trusted host opens no class before the first unlock.
        case beforeFirstUnlock = "BeforeFirstUnlock"
        /// The host is not trusted: it never was, or it was removed.
        case hostUnknown = "HostUnknown"
        /// The host did not connect for 30 days.
        case hostExpired = "HostExpired"
        /// A host of that name is trusted already.
        case hostExists = "HostExists"
        case tooManyHosts = "TooManyHosts"
    }

    /// The error's name without the interface's name.
    public var name: String { message.name }

    public var parameters: JSONValue { message.parameters }

    private var message: (name: String, parameters: JSONValue) {
        switch self {
        case .wrongPasscode(let triesLeft):
            (
                "WrongPasscode",
                .object(present: [("triesLeft", triesLeft.map { .int(Int64($0)) })])
            )
        case .tryLater(let seconds): ("TryLater", .object([("seconds", .int(Int64(seconds)))]))
        case .refused(let refusal): (refusal.rawValue, .object([]))
        case .clockNotManual: ("ClockNotManual", .object([]))
        case .busy(let reason): ("Busy", .object([("reason", .string(reason))]))
        case .invalidPasscode(let reason):
            ("InvalidPasscode", .object([("reason", .string(reason))]))
        case .failed(let what, let why):
            ("Failed", .object([("what", .string(what)), ("why", .string(why))]))
        case .locked: ("Locked", .object([]))
        case .kernelKeepsPages(let reason):
            ("KernelKeepsPages", .object([("reason", .string(reason))]))
        }
    }

    /// Each error of the interface once, with the parameters that were received.
    static func all(_ parameters: JSONValue) -> [VolumeError] {
        func text(_ member: String) -> String { parameters[member]?.stringValue ?? "" }
        let refusals = Refusal.allCases.map { VolumeError.refused($0) }
        return [
            .wrongPasscode(triesLeft: parameters["triesLeft"]?.intValue),
            .tryLater(seconds: parameters["seconds"]?.intValue ?? 0), .clockNotManual,
            .busy(reason: text("reason")), .invalidPasscode(reason: text("reason")),
            .failed(what: text("what"), why: text("why")), .locked,
            .kernelKeepsPages(reason: text("reason")),
        ] + refusals
    }

    /// Nil where the name is not an error of this interface.
    public init?(qualifiedName: String, parameters: JSONValue) {
        let found = VolumeError.all(parameters).first {
            VolumeInterface.qualified($0.name) == qualifiedName
        }
        guard let found else { return nil }
        self = found
    }
}
