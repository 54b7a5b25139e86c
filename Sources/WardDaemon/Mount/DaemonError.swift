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
    public let status: ExitStatus

    public init(_ what: String, _ path: String, _ why: String, hint: String?, status: ExitStatus) {
        self.what = what
        self.path = path
        self.why = why
        self.hint = hint
        self.status = status
    }

    public var description: String { "\(what) \(path): \(why)" }

    static func status(of error: Errno) -> ExitStatus {
        switch error.rawValue {
        case ENOENT, ENOTDIR: .noInput
        case EACCES, EPERM: .notPermitted
        case EROFS: .cannotCreate
        case ENOMEM, EMFILE, ENFILE: .temporary
        default: .inputOutput
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
            "mount", error.path, error.reason, hint: advice.hint, status: advice.status)
    }

    init(_ error: VolumeOpenError, volumePath: String) {
        switch error.code {
        case .notAVolume:
            self.init(
                "mount", error.path, error.reason, hint: "ward init \(volumePath)",
                status: .notAVolume)
        case .damaged:
            self.init(
                "mount", error.path, error.reason,
                hint: "restore \(error.path) from a backup of the volume", status: .damaged)
        case .newerVersion:
            self.init(
                "mount", error.path, error.reason,
                hint: "install the version of ward that made it, or a later one",
                status: .damaged)
        case .system(let reason):
            self.init(
                "mount", error.path, error.reason,
                hint: DaemonError.advice(reason, volumePath: volumePath),
                status: DaemonError.status(of: reason))
        }
    }

    init(_ error: FUSEError) {
        let status: ExitStatus =
            switch error.code {
            case .mountPointMissing: .noInput
            case .noDevice, .noHelper, .kernelTooOld: .unavailable
            case .notEmpty, .notADirectory: .cannotCreate
            case .busy: .temporary
            case .allowOtherForbidden: .notPermitted
            case .refused: .inputOutput
            }
        self.init(error.action, error.path, error.reason, hint: error.hint, status: status)
    }

    init(_ error: ControlError) {
        let status: ExitStatus =
            switch error.code {
            case .permission: .notPermitted
            case .system(let reason): DaemonError.status(of: reason)
            default: .cannotCreate
            }
        self.init(
            "open the control socket in", error.path, error.reason,
            hint: getenv("XDG_RUNTIME_DIR") == nil
                ? "name a directory of your own: XDG_RUNTIME_DIR=DIRECTORY ward mount …"
                : "do without the one that XDG_RUNTIME_DIR names: env -u XDG_RUNTIME_DIR ward mount …",
            status: status)
    }
}
