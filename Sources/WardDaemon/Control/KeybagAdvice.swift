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
        let adopt = "ward adopt \(volume) --recovery-kit FILE"
        (status, reason, hint) =
            switch error.code {
            case .notAVolume: (.notAVolume, "it is not a ward volume", "ward init \(volume)")
            case .alreadyAVolume:
                (
                    .cannotCreate, "there is a volume in it already",
                    "ward mount \(volume) MOUNTPOINT"
                )
            case .insideVolume:
                (.usage, nil, "name a path outside the volume, or set XDG_STATE_HOME")
            case .damaged:
                (
                    .damaged, nil,
                    "restore the keybag from a backup of the volume, or: \(adopt) --replace"
                )
            case .newerVersion:
                (.damaged, nil, "install the version of ward that made it, or a later one")
            case .noDeviceKey:
                (
                    .configuration, "its device key is not on this machine: \(error.path)",
                    "\(adopt); without a kit: restore \(error.path) from a backup"
                )
            case .erased:
                (
                    .damaged, error.reason,
                    "only a recovery kit made before opens what is left of it: \(adopt)"
                )
            case .wrongPasscode(triesLeft: 0):
                (
                    .wrongPasscode, "wrong passcode, 0 tries left",
                    "that was the last try: only a recovery kit opens it now: \(adopt) --replace"
                )
            case .wrongPasscode(let left):
                (
                    .wrongPasscode, "wrong passcode, \(left) \(left == 1 ? "try" : "tries") left",
                    "check the passcode; the same wrong one again does not count"
                )
            case .tryLater(let wait):
                (
                    .tryLater, "too many wrong passcodes",
                    "try again in \(KeybagAdvice.duration(wait))"
                )
            case .disabled:
                (
                    .tryLater, "too many wrong passcodes: the volume is disabled",
                    "only a recovery kit opens it now: \(adopt) --replace"
                )
            case .passcodeNeeded:
                (
                    .usage, "it has a passcode, which is needed",
                    "--passcode-file FILE or --passcode-fd N"
                )
            case .noPasscodeSet: (.usage, "no passcode is set", "ward passcode set \(volume)")
            case .beforeFirstUnlock:
                (
                    .locked, "it was not unlocked since it was mounted or rebooted",
                    "ward unlock \(volume)"
                )
            case .hostUnknown:
                (
                    .notPermitted, "this host is not trusted: it was removed, or never was",
                    "ward trust add \(volume) NAME --out FILE, while unlocked"
                )
            case .hostExpired:
                (
                    .notPermitted,
                    "this host was not used for 30 days, and is not trusted any more",
                    "trust it again: ward trust add \(volume) NAME --out FILE, while unlocked"
                )
            case .hostExists:
                (
                    .cannotCreate, "a host of this name is trusted already",
                    "choose another name, or ward trust remove \(volume) NAME"
                )
            case .tooManyHosts:
                (
                    .cannotCreate, "no more hosts can be trusted",
                    "ward trust list \(volume), then ward trust remove \(volume) NAME"
                )
            case .passcodeAlreadySet:
                (.usage, "a passcode is set already", "ward passcode change \(volume)")
            case .replayed:
                (
                    .damaged, nil,
                    "if you restored it from a backup: "
                        + "ward mount --accept-older \(volume) MOUNTPOINT; "
                        + "where that is refused, too: \(adopt) --replace"
                )
            case .changedElsewhere: (.temporary, nil, "try again")
            case .wrongRecoveryCode:
                (
                    .wrongPasscode, error.reason,
                    "every kit has a code of its own: find the one of this kit"
                )
            case .kitOfAnotherVolume:
                (.badData, error.reason, "ward recovery show FILE says which is which")
            case .deviceHasKeys(opensThis: true):
                (
                    .cannotCreate, nil,
                    "ward mount \(volume) MOUNTPOINT; with another passcode: \(adopt) --replace"
                )
            case .deviceHasKeys(opensThis: false):
                (
                    .cannotCreate, nil,
                    "\(adopt) --replace: nothing else that these keys open opens with them afterwards"
                )
            case .fileExists: (.cannotCreate, nil, "name a new file")
            case .outOfLockedMemory:
                (.temporary, error.reason, "raise the limit on locked memory: ulimit -l")
            case .system(let reason):
                (
                    DaemonError.status(of: reason), nil,
                    DaemonError.advice(reason, volumePath: volume)
                )
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
