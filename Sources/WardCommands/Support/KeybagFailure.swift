import WardConsole
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
        // The message already names the volume, so the reason names only another file.
        let isNamed = error.path == subject || error.path.isEmpty
        let reason = isNamed ? error.reason : "\(error.reason) (\(error.path))"
        self.init(
            what, subject, why: advice.reason ?? reason, hint: advice.hint, status: advice.status)
    }

    /// The same error as reported by a daemon, whose answer has no reason.
    init(_ what: String, _ subject: String?, reported code: KeybagError.Code) {
        // Each error that daemons report has words in `KeybagAdvice`, except `erased`.
        self.init(what, subject, KeybagError(code, path: subject ?? "", "it was erased"))
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
