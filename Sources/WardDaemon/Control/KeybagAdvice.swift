import WardKeys
import WardSystem

/// The exit code and the advice for a keybag's error: one table for the daemon and the commands.
public struct KeybagAdvice: Equatable, Sendable {
    /// The exit code, as `sysexits.h` and `ward help` list them.
    public let exitCode: Int32
    /// The next command, or short advice.
    public let hint: String?

    /// - Parameters:
    ///   - volume: The volume's directory, or a path in its mount, as it is to be pasted into a
    ///     command.
    public init(_ error: KeybagError, volume: String) {
        typealias Exit = DaemonError.Exit
        let adopt = "ward adopt \(volume) --recovery-kit FILE"
        (exitCode, hint) =
            switch error.code {
            case .notAVolume: (Exit.notAVolume, "ward init \(volume)")
            case .alreadyAVolume: (Exit.cannotCreate, "ward mount \(volume) MOUNTPOINT")
            case .insideVolume:
                (Exit.usage, "name a path outside the volume, or set XDG_STATE_HOME")
            case .damaged:
                (
                    Exit.damaged,
                    "restore the keybag from a backup of the volume, or: \(adopt) --replace"
                )
            case .newerVersion:
                (Exit.damaged, "install the version of ward that made it, or a later one")
            case .noDeviceKey:
                (
                    Exit.configuration,
                    "\(adopt); without a kit: restore \(error.path) from a backup"
                )
            case .erased:
                (Exit.damaged, "only a recovery kit made before opens what is left of it: \(adopt)")
            case .wrongPasscode(triesLeft: 0):
                (
                    Exit.wrongPasscode,
                    "that was the last try: only a recovery kit opens it now: \(adopt) --replace"
                )
            case .wrongPasscode:
                (Exit.wrongPasscode, "check the passcode; the same wrong one again does not count")
            case .tryLater(let wait):
                (Exit.tryLater, "try again in \(KeybagAdvice.duration(wait))")
            case .disabled:
                (Exit.tryLater, "only a recovery kit opens it now: \(adopt) --replace")
            case .passcodeNeeded: (Exit.usage, "--passcode-file FILE or --passcode-fd N")
            case .noPasscodeSet: (Exit.usage, "ward passcode set \(volume)")
            case .beforeFirstUnlock: (Exit.locked, "ward unlock \(volume)")
            case .hostUnknown:
                (Exit.noPermission, "ward trust add \(volume) NAME --out FILE, while unlocked")
            case .hostExpired:
                (
                    Exit.noPermission,
                    "trust it again: ward trust add \(volume) NAME --out FILE, while unlocked"
                )
            case .hostExists:
                (Exit.cannotCreate, "choose another name, or ward trust remove \(volume) NAME")
            case .tooManyHosts:
                (
                    Exit.cannotCreate,
                    "ward trust list \(volume), then ward trust remove \(volume) NAME"
                )
            case .passcodeAlreadySet: (Exit.usage, "ward passcode change \(volume)")
            case .replayed:
                (
                    Exit.damaged,
                    "if you restored it from a backup: "
                        + "ward mount --accept-older \(volume) MOUNTPOINT; "
                        + "where that is refused, too: \(adopt) --replace"
                )
            case .changedElsewhere: (Exit.temporaryFailure, "try again")
            case .wrongRecoveryCode:
                (Exit.wrongPasscode, "every kit has a code of its own: find the one of this kit")
            case .kitOfAnotherVolume: (Exit.badData, "ward recovery show FILE says which is which")
            case .deviceHasKeys(opensThis: true):
                (
                    Exit.cannotCreate,
                    "ward mount \(volume) MOUNTPOINT; with another passcode: \(adopt) --replace"
                )
            case .deviceHasKeys(opensThis: false):
                (
                    Exit.cannotCreate,
                    "\(adopt) --replace: nothing else that these keys open opens with them afterwards"
                )
            case .fileExists: (Exit.cannotCreate, "name a new file")
            case .outOfLockedMemory:
                (Exit.temporaryFailure, "raise the limit on locked memory: ulimit -l")
            case .system(let reason):
                (
                    DaemonError.exitCode(of: reason),
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
