import WardControl
import WardDaemon
import WardKeys
import WardSystem
import WardVolume

extension CommandFailure {
    /// An error of a keybag, its keys or a recovery kit.
    init(_ what: String, _ subject: String?, _ error: KeybagError) {
        let place = subject.map { Text.shellQuoted($0) } ?? "VOLUME"
        let advice = KeybagAdvice(error, volume: place)
        self.init(
            what, subject, why: CommandFailure.reason(error, subject), hint: advice.hint,
            status: advice.status)
    }

    /// The same error as reported by a daemon; nil where it is not about keys.
    init?(_ what: String, _ subject: String?, volume error: VolumeError) {
        let code: KeybagError.Code
        switch error {
        case .wrongPasscode(let triesLeft): code = .wrongPasscode(triesLeft: triesLeft ?? 0)
        case .tryLater(let seconds): code = .tryLater(.seconds(seconds))
        case .disabled: code = .disabled
        case .noPasscodeSet: code = .noPasscodeSet
        case .passcodeAlreadySet: code = .passcodeAlreadySet
        case .passcodeNeeded: code = .passcodeNeeded
        case .erased: code = .erased
        case .beforeFirstUnlock: code = .beforeFirstUnlock
        case .hostUnknown: code = .hostUnknown
        case .hostExpired: code = .hostExpired
        case .hostExists: code = .hostExists
        case .tooManyHosts: code = .tooManyHosts
        case .clockNotManual, .busy, .invalidPasscode, .failed, .locked: return nil
        }
        self.init(what, subject, KeybagError(code, path: subject ?? "", "it was erased"))
    }

    private static func reason(_ error: KeybagError, _ subject: String?) -> String {
        switch error.code {
        case .notAVolume: "it is not a ward volume"
        case .alreadyAVolume: "there is a volume in it already"
        case .noDeviceKey: "its device key is not on this machine: \(error.path)"
        case .wrongPasscode(let left): "wrong passcode, \(Text.count(left, "try")) left"
        case .tryLater: "too many wrong passcodes"
        case .disabled: "too many wrong passcodes: the volume is disabled"
        case .passcodeNeeded: "it has a passcode, which is needed"
        case .noPasscodeSet: "no passcode is set"
        case .passcodeAlreadySet: "a passcode is set already"
        case .beforeFirstUnlock: "it was not unlocked since it was mounted or rebooted"
        case .hostUnknown: "this host is not trusted: it was removed, or never was"
        case .hostExpired: "this host was not used for 30 days, and is not trusted any more"
        case .hostExists: "a host of this name is trusted already"
        case .tooManyHosts: "no more hosts can be trusted"
        case .erased, .wrongRecoveryCode, .outOfLockedMemory, .kitOfAnotherVolume: error.reason
        // The message already names the volume, so the reason names only another file.
        default:
            error.path == subject || error.path.isEmpty
                ? error.reason : "\(error.reason) (\(error.path))"
        }
    }

    init(_ what: String, _ subject: String, _ error: PasscodeError) {
        self.init(
            what, subject, why: error.description,
            hint: "a passcode is 1 to 1,024 bytes of UTF-8 text", status: .badData)
    }

    init(_ what: String, _ subject: String, _ error: VolumeOpenError) {
        let status: ExitStatus =
            switch error.code {
            case .notAVolume: .notAVolume
            case .damaged, .newerVersion: .damaged
            case .system: .inputOutput
            }
        let why = error.path == subject ? error.reason : "\(error.reason) (\(error.path))"
        self.init(what, subject, why: why, status: status)
    }
}
