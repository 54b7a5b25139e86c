import Glibc
import WardControl
import WardFUSE
import WardKeys
import WardSystem
import WardVolume

/// The reason why a volume can't be mounted, for `ward: error: what, on what, why` and
/// `ward: hint: …`.
public struct DaemonError: Error, Sendable, CustomStringConvertible {
    /// The action that was attempted: `mount`.
    public let what: String
    /// The path that the error is about.
    public let path: String
    public let why: String
    /// The next command for the user, or nil.
    public let hint: String?
    /// The exit code, as `sysexits.h` and `ward help` list them.
    public let exitCode: Int32

    public init(_ what: String, _ path: String, _ why: String, hint: String?, exitCode: Int32) {
        self.what = what
        self.path = path
        self.why = why
        self.hint = hint
        self.exitCode = exitCode
    }

    public var description: String { "\(what) \(path): \(why)" }

    /// The exit codes of the daemon.
    enum Exit {
        static let notAVolume: Int32 = 10
        static let locked: Int32 = 11
        static let wrongPasscode: Int32 = 12
        static let tryLater: Int32 = 13
        static let damaged: Int32 = 14
        static let usage: Int32 = 64
        static let badData: Int32 = 65
        static let noInput: Int32 = 66
        static let unavailable: Int32 = 69
        static let software: Int32 = 70
        static let cannotCreate: Int32 = 73
        static let inputOutput: Int32 = 74
        static let temporaryFailure: Int32 = 75
        static let noPermission: Int32 = 77
        static let configuration: Int32 = 78
    }

    static func exitCode(of error: Errno) -> Int32 {
        switch error.rawValue {
        case ENOENT, ENOTDIR: Exit.noInput
        case EACCES, EPERM: Exit.noPermission
        case EROFS: Exit.cannotCreate
        case ENOMEM, EMFILE, ENFILE: Exit.temporaryFailure
        default: Exit.inputOutput
        }
    }
}

extension DaemonError {
    /// The advice for a system call's failure on the volume.
    static func advice(_ error: Errno, volumePath: String) -> String? {
        switch error.rawValue {
        case EROFS: "ward mount --read-only \(volumePath) MOUNTPOINT changes nothing on disk"
        case EACCES, EPERM: "ls -ld \(volumePath) shows who may"
        case ENOSPC, EDQUOT: "make room there: df -h \(volumePath)"
        case ENOENT, ENOTDIR: "check the path"
        default: nil
        }
    }

    init(_ error: KeybagError, volumePath: String) {
        let advice = KeybagAdvice(error, volume: volumePath)
        self.init(
            "mount", error.path, error.reason, hint: advice.hint, exitCode: advice.exitCode)
    }

    init(_ error: VolumeOpenError, volumePath: String) {
        switch error.code {
        case .notAVolume:
            self.init(
                "mount", error.path, error.reason, hint: "ward init \(volumePath)",
                exitCode: Exit.notAVolume)
        case .damaged:
            self.init(
                "mount", error.path, error.reason,
                hint: "restore \(error.path) from a backup of the volume", exitCode: Exit.damaged)
        case .newerVersion:
            self.init(
                "mount", error.path, error.reason,
                hint: "install the version of ward that made it, or a later one",
                exitCode: Exit.damaged)
        case .system(let reason):
            self.init(
                "mount", error.path, error.reason,
                hint: DaemonError.advice(reason, volumePath: volumePath),
                exitCode: DaemonError.exitCode(of: reason))
        }
    }

    init(_ error: FUSEError) {
        let code: Int32 =
            switch error.code {
            case .mountPointMissing: Exit.noInput
            case .noDevice, .noHelper, .kernelTooOld: Exit.unavailable
            case .notEmpty, .notADirectory: Exit.cannotCreate
            case .busy: Exit.temporaryFailure
            case .allowOtherForbidden: Exit.noPermission
            case .refused: Exit.inputOutput
            }
        self.init(error.action, error.path, error.reason, hint: error.hint, exitCode: code)
    }

    init(_ error: ControlError) {
        let code: Int32 =
            switch error.code {
            case .permission: Exit.noPermission
            case .system(let reason): DaemonError.exitCode(of: reason)
            default: Exit.cannotCreate
            }
        self.init(
            "open the control socket in", error.path, error.reason,
            hint: getenv("XDG_RUNTIME_DIR") == nil
                ? "name a directory of your own: XDG_RUNTIME_DIR=DIRECTORY ward mount …"
                : "do without the one that XDG_RUNTIME_DIR names: env -u XDG_RUNTIME_DIR ward mount …",
            exitCode: code)
    }
}
