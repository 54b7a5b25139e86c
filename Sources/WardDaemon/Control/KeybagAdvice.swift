import WardControl
import WardKeys
import WardSystem

/// The exit code and the advice for a keybag's error: one table for the daemon and the commands.
public struct KeybagAdvice: Equatable, Sendable {
    public let status: ExitStatus
    /// The next command, or short advice.
    public let hint: String?

    /// - Parameters:
    ///   - volume: The volume's directory, or a path in its mount, as it is to be pasted into a
    ///     command.
    public init(_ error: KeybagError, volume: String) {
        let adopt = "ward adopt \(volume) --recovery-kit FILE"
        (status, hint) =
            switch error.code {
            case .notAVolume: (.notAVolume, "ward init \(volume)")
            case .alreadyAVolume: (.cannotCreate, "ward mount \(volume) MOUNTPOINT")
            case .insideVolume:
                (.usage, "name a path outside the volume, or set XDG_STATE_HOME")
            case .damaged:
                (
                    .damaged,
                    "restore the keybag from a backup of the volume, or: \(adopt) --replace"
                )
            case .newerVersion:
                (.damaged, "install the version of ward that made it, or a later one")
            case .noDeviceKey:
                (
                    .configuration,
                    "\(adopt); without a kit: restore \(error.path) from a backup"
                )
            case .erased:
                (.damaged, "only a recovery kit made before opens what is left of it: \(adopt)")
            case .wrongPasscode(triesLeft: 0):
                (
                    .wrongPasscode,
                    "that was the last try: only a recovery kit opens it now: \(adopt) --replace"
                )
            case .wrongPasscode:
                (.wrongPasscode, "check the passcode; the same wrong one again does not count")
            case .tryLater(let wait):
                (.tryLater, "try again in \(KeybagAdvice.duration(wait))")
            case .disabled:
                (.tryLater, "only a recovery kit opens it now: \(adopt) --replace")
            case .passcodeNeeded: (.usage, "--passcode-file FILE or --passcode-fd N")
            case .noPasscodeSet: (.usage, "ward passcode set \(volume)")
            case .beforeFirstUnlock: (.locked, "ward unlock \(volume)")
            case .hostUnknown:
                (.notPermitted, "ward trust add \(volume) NAME --out FILE, while unlocked")
            case .hostExpired:
                (
                    .notPermitted,
                    "trust it again: ward trust add \(volume) NAME --out FILE, while unlocked"
                )
            case .hostExists:
                (.cannotCreate, "choose another name, or ward trust remove \(volume) NAME")
            case .tooManyHosts:
                (
                    .cannotCreate,
                    "ward trust list \(volume), then ward trust remove \(volume) NAME"
                )
            case .passcodeAlreadySet: (.usage, "ward passcode change \(volume)")
            case .replayed:
                (
                    .damaged,
                    "if you restored it from a backup: "
                        + "ward mount --accept-older \(volume) MOUNTPOINT; "
                        + "where that is refused, too: \(adopt) --replace"
                )
            case .changedElsewhere: (.temporary, "try again")
            case .wrongRecoveryCode:
                (.wrongPasscode, "every kit has a code of its own: find the one of this kit")
            case .kitOfAnotherVolume: (.badData, "ward recovery show FILE says which is which")
            case .deviceHasKeys(opensThis: true):
                (
                    .cannotCreate,
                    "ward mount \(volume) MOUNTPOINT; with another passcode: \(adopt) --replace"
                )
            case .deviceHasKeys(opensThis: false):
                (
                    .cannotCreate,
                    "\(adopt) --replace: nothing else that these keys open opens with them afterwards"
                )
            case .fileExists: (.cannotCreate, "name a new file")
            case .outOfLockedMemory:
                (.temporary, "raise the limit on locked memory: ulimit -l")
            case .system(let reason):
                (
                    DaemonError.status(of: reason),
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
