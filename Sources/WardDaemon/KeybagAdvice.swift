import WardKeys
import WardSystem

/// What a keybag's error means to a person: the one table of exit codes and next steps, for the daemon and the commands.
public struct KeybagAdvice: Equatable, Sendable {
    /// As `sysexits.h` and `ward help` list them.
    public let exitCode: Int32
    /// The next command, or a short piece of advice.
    public let hint: String?

    /// - Parameters:
    ///   - volume: The volume's directory, or a path in its mount, as it is to be pasted into a command.
    public init(_ error: KeybagError, volume: String) {
        typealias Exit = DaemonError.Exit
        (exitCode, hint) =
            switch error.code {
            case .notAVolume: (Exit.notAVolume, "ward init \(volume)")
            case .alreadyAVolume: (Exit.cannotCreate, "ward mount \(volume) MOUNTPOINT")
            case .insideVolume:
                (Exit.usage, "name a path outside the volume, or set XDG_STATE_HOME")
            case .damaged:
                (
                    Exit.damaged,
                    "restore the keybag from a backup of the volume, or open it with a recovery kit"
                )
            case .newerVersion:
                (Exit.damaged, "install the version of ward that made it, or a later one")
            case .noDeviceKey:
                (
                    Exit.configuration,
                    "restore \(error.path) from a backup; a copied volume needs its recovery kit"
                )
            case .erased:
                (Exit.damaged, "only a recovery kit made before still opens what is left of it")
            case .wrongPasscode(triesLeft: 0):
                (Exit.wrongPasscode, "that was the last try: only a recovery kit opens it now")
            case .wrongPasscode:
                (Exit.wrongPasscode, "check the passcode; the same wrong one again does not count")
            case .tryLater(let wait):
                (Exit.tryLater, "try again in \(KeybagAdvice.duration(wait))")
            case .disabled: (Exit.tryLater, "only a recovery kit opens it now")
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
                    "if you restored this volume from a backup: "
                        + "ward mount --accept-older \(volume) MOUNTPOINT"
                )
            case .changedElsewhere: (Exit.temporaryFailure, "try again")
            case .wrongRecoveryCode: (Exit.wrongPasscode, "check the recovery code")
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

    /// "3 min", "8 h": rounded up, so that who waits as long is not refused again.
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
