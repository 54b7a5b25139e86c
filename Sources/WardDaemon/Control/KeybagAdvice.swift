import WardControl
import WardKeys
import WardSystem

/// The exit code, the words and the advice for a keybag's error: one table for the daemon and the
/// commands.
public struct KeybagAdvice: Equatable, Sendable {
    public let status: ExitStatus
    /// The fault in words that need no path; nil where the error's own reason and path say it.
    public let reason: String?
    /// The next command, or short advice.
    public let hint: String?

    /// - Parameters:
    ///   - volume: The volume's directory, or a path in its mount, as it is to be pasted into a
    ///     command.
    public init(_ error: KeybagError, volume: String) {
        status = KeybagAdvice.status(of: error.code)
        reason = KeybagAdvice.reason(of: error)
        hint = KeybagAdvice.hint(after: error, volume)
    }

    private static func status(of code: KeybagError.Code) -> ExitStatus {
        switch code {
        case .notAVolume: .notAVolume
        case .alreadyAVolume, .hostExists, .tooManyHosts, .deviceHasKeys, .fileExists: .cannotCreate
        case .insideVolume, .passcodeNeeded, .noPasscodeSet, .passcodeAlreadySet: .usage
        case .damaged, .newerVersion, .erased, .replayed: .damaged
        case .noDeviceKey: .configuration
        case .wrongPasscode, .wrongRecoveryCode: .wrongPasscode
        case .tryLater, .disabled: .tryLater
        case .beforeFirstUnlock: .locked
        case .hostUnknown, .hostExpired: .notPermitted
        case .changedElsewhere, .outOfLockedMemory: .temporary
        case .kitOfAnotherVolume: .badData
        case .system(let reason): DaemonError.status(of: reason)
        }
    }

    private static func reason(of error: KeybagError) -> String? {
        switch error.code {
        case .notAVolume: "it is not a ward volume"
        case .alreadyAVolume: "there is a volume in it already"
        case .noDeviceKey: "its device key is not on this machine: \(error.path)"
        case .wrongPasscode(triesLeft: 0): "wrong passcode, 0 tries left"
        case .wrongPasscode(let left):
            "wrong passcode, \(left) \(left == 1 ? "try" : "tries") left"
        case .tryLater: "too many wrong passcodes"
        case .disabled: "too many wrong passcodes: the volume is disabled"
        case .passcodeNeeded: "it has a passcode, which is needed"
        case .noPasscodeSet: "no passcode is set"
        case .beforeFirstUnlock: "it was not unlocked since it was mounted or rebooted"
        case .hostUnknown: "this host is not trusted: it was removed, or never was"
        case .hostExpired: "this host was not used for 30 days, and is not trusted any more"
        case .hostExists: "a host of this name is trusted already"
        case .tooManyHosts: "no more hosts can be trusted"
        case .passcodeAlreadySet: "a passcode is set already"
        case .erased, .wrongRecoveryCode, .kitOfAnotherVolume, .outOfLockedMemory: error.reason
        case .insideVolume, .damaged, .newerVersion, .replayed, .changedElsewhere, .deviceHasKeys,
            .fileExists, .system:
            nil
        }
    }

    private static func hint(after error: KeybagError, _ volume: String) -> String? {
        let adopt = "ward adopt \(volume) --recovery-kit FILE"
        return switch error.code {
        case .notAVolume: "ward init \(volume)"
        case .alreadyAVolume: "ward mount \(volume) MOUNTPOINT"
        case .insideVolume: "name a path outside the volume, or set XDG_STATE_HOME"
        case .damaged: "restore the keybag from a backup of the volume, or: \(adopt) --replace"
        case .newerVersion: "install the version of ward that made it, or a later one"
        case .noDeviceKey: "\(adopt); without a kit: restore \(error.path) from a backup"
        case .erased: "only a recovery kit made before opens what is left of it: \(adopt)"
        case .wrongPasscode(triesLeft: 0):
            "that was the last try: only a recovery kit opens it now: \(adopt) --replace"
        case .wrongPasscode: "check the passcode; the same wrong one again does not count"
        case .tryLater(let wait): "try again in \(KeybagAdvice.duration(wait))"
        case .disabled: "only a recovery kit opens it now: \(adopt) --replace"
        case .passcodeNeeded: "--passcode-file FILE or --passcode-fd N"
        case .noPasscodeSet: "ward passcode set \(volume)"
        case .beforeFirstUnlock: "ward unlock \(volume)"
        case .hostUnknown: "ward trust add \(volume) NAME --out FILE, while unlocked"
        case .hostExpired:
            "trust it again: ward trust add \(volume) NAME --out FILE, while unlocked"
        case .hostExists: "choose another name, or ward trust remove \(volume) NAME"
        case .tooManyHosts: "ward trust list \(volume), then ward trust remove \(volume) NAME"
        case .passcodeAlreadySet: "ward passcode change \(volume)"
        case .replayed:
            "if you restored it from a backup: ward mount --accept-older \(volume) MOUNTPOINT; "
                + "where that is refused, too: \(adopt) --replace"
        case .changedElsewhere: "try again"
        case .wrongRecoveryCode: "every kit has a code of its own: find the one of this kit"
        case .kitOfAnotherVolume: "ward recovery show FILE says which is which"
        case .deviceHasKeys(opensThis: true):
            "ward mount \(volume) MOUNTPOINT; with another passcode: \(adopt) --replace"
        case .deviceHasKeys(opensThis: false):
            "\(adopt) --replace: nothing else that these keys open opens with them afterwards"
        case .fileExists: "name a new file"
        case .outOfLockedMemory: "raise the limit on locked memory: ulimit -l"
        case .system(let reason): DaemonError.advice(reason, volumePath: volume)
        }
    }

    /// "3 min", "8 h": rounded up, so that a user who waits that long is not refused again.
    static func duration(_ wait: Duration) -> String {
        let (whole, rest) = wait.components
        let seconds = whole + (rest > 0 ? 1 : 0)
        switch seconds {
        case ..<100: return "\(seconds) s"
        case ..<7200: return "\((seconds + 59) / 60) min"
        default: return "\((seconds + 3599) / 3600) h"
        }
    }
}
