import WardKeys
import WardSystem
import WardVolume

extension CommandFailure {
    /// What is wrong with a keybag, its keys or a recovery kit.
    init(_ what: String, _ subject: String, _ error: KeybagError) {
        let place = Text.shellQuoted(subject)
        // The failure names the volume; where the trouble is in another file, the reason names that.
        let why =
            error.path == subject || error.path.isEmpty
            ? error.reason : "\(error.reason) (\(error.path))"
        switch error.code {
        case .notAVolume:
            self.init(
                what, subject, why: "it is not a ward volume", hint: "ward init \(place)",
                status: .notAVolume)
        case .alreadyAVolume:
            self.init(
                what, subject, why: "there is a volume in it already",
                hint: "ward mount \(place) MOUNTPOINT", status: .cannotCreate)
        case .insideVolume:
            self.init(
                what, subject, why: why,
                hint: "name a path outside the volume, or set XDG_STATE_HOME",
                status: .usage)
        case .damaged:
            self.init(
                what, subject, why: why,
                hint: "restore ward.keybag from a backup of the volume, or use the recovery kit",
                status: .damaged)
        case .newerVersion:
            self.init(
                what, subject, why: why, hint: "a later version of ward reads it: ward version",
                status: .damaged)
        case .noDeviceKey:
            self.init(
                what, subject, why: "its device key is not on this machine: \(error.path)",
                hint: "copy that directory from the machine that made it, or use the recovery kit",
                status: .configuration)
        case .erased:
            self.init(
                what, subject, why: error.reason, hint: "only a recovery kit opens it now",
                status: .damaged)
        case .wrongPasscode(let left):
            self.init(
                what, subject, why: "wrong passcode, \(Text.count(left, "try")) left",
                hint: "check the passcode",
                status: .wrongPasscode)
        case .tryLater(let wait):
            let text = Text.duration(seconds: Double(wait.components.seconds) + 1)
            self.init(
                what, subject, why: "too many wrong passcodes", hint: "try again in \(text)",
                status: .tryLater)
        case .disabled:
            self.init(
                what, subject, why: "too many wrong passcodes: the volume is disabled",
                hint: "only a recovery kit opens it now", status: .tryLater)
        case .passcodeNeeded, .noPasscodeSet:
            self.init(
                what, subject, why: error.reason, hint: "ward passcode set \(place)", status: .usage
            )
        case .passcodeAlreadySet:
            self.init(
                what, subject, why: "a passcode is set already",
                hint: "ward passcode change \(place)", status: .usage)
        case .replayed:
            self.init(
                what, subject, why: why, hint: "put back the newest copy of ward.keybag",
                status: .damaged)
        case .changedElsewhere:
            self.init(what, subject, why: why, hint: "try again", status: .temporary)
        case .wrongRecoveryCode:
            self.init(
                what, subject, why: error.reason, hint: "check the recovery code",
                status: .wrongPasscode)
        case .fileExists:
            self.init(what, subject, why: why, hint: "name a new file", status: .cannotCreate)
        case .outOfLockedMemory:
            self.init(
                what, subject, why: error.reason, hint: "ulimit -l unlimited", status: .system)
        case .system(let errno):
            self.init(what, subject, errno: errno)
            self.why = why
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
