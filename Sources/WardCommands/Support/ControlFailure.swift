import Glibc
import WardConsole
import WardControl
import WardDaemon
import WardKeys
import WardSystem

extension CommandFailure {
    /// An error of the daemon, or of the connection to it.
    /// - Parameter mountPoint: The volume's place, for the next command.
    init(_ what: String, _ subject: String?, _ error: ControlError) {
        let place = subject.map { " " + Text.shellQuoted($0) } ?? ""
        switch error.code {
        case .volume(let error):
            self.init(what, subject, volume: error, place: place)
        case .noSocket, .refused, .connectionLost:
            self.init(
                what, subject, why: "its daemon is not there: \(error.reason)",
                hint: what.hasPrefix("cannot unmount")
                    ? "ward status\(place) shows what is left"
                    : "ward unmount\(place), then mount it again", status: .unavailable)
        case .replaced:
            self.init(
                what, subject,
                why: "another program may have taken its daemon's place: \(error.reason)",
                hint: what.hasPrefix("cannot lock")
                    ? "ward unmount\(place)" : "ward lock\(place) --now, which needs no socket",
                status: .notPermitted)
        case .mountOfAnother:
            // The kernel admits no other user, not even root, unless the mount has --allow-other.
            self.init(
                what, subject ?? error.path, why: error.reason,
                hint: "run ward as that user, or mount with --allow-other", status: .notPermitted)
        case .permission:
            self.init(
                what, subject ?? error.path, why: error.reason,
                hint: "only the owner of a mount, and root, may control it",
                status: .notPermitted)
        case .notInMount:
            let path = subject ?? error.path
            if access(Path.joined(path, "ward.keybag"), F_OK) == 0 {
                self.init(
                    what, path, why: "it is a volume, and not mounted",
                    hint: "ward mount\(place) MOUNTPOINT", status: .unavailable)
            } else {
                self.init(
                    what, path, why: "it is not in a mounted volume",
                    hint: "ward status lists the mounted volumes", status: .notAVolume)
            }
        case .noneMounted:
            self.init(
                what, why: "no volume is mounted", hint: "ward mount VOLUME MOUNTPOINT",
                status: .unavailable)
        case .severalMounted(let all):
            let places = all.map { Text.shellQuoted($0.mountPoint) }.joined(separator: ", ")
            self.init(
                what, why: "\(all.count) volumes are mounted and none was named",
                hint: "name one of \(places)", status: .usage)
        case .varlink("org.varlink.service.MethodNotImplemented", _):
            self.init(
                what, subject,
                why: "in a container's sandbox the daemon tells the lock state alone",
                hint: "run it outside of the sandbox", status: .notPermitted)
        case .varlink(let name, _):
            self.init(
                what, subject, why: "the daemon answered \(name)",
                hint: "ward version and ward status --json tell the versions of both sides",
                status: .software)
        case .protocolViolation:
            self.init(what, subject, why: error.reason, status: .software)
        case .timedOut:
            self.init(
                what, subject, why: "the daemon does not answer",
                hint: "ward unmount --force\(place)", status: .temporary)
        case .system(let errno):
            self.init(what, subject ?? error.path, errno: errno)
        }
    }

    private init(_ what: String, _ subject: String?, volume error: VolumeError, place: String) {
        switch error {
        case .wrongPasscode(let triesLeft):
            self.init(what, subject, reported: .wrongPasscode(triesLeft: triesLeft ?? 0))
        case .tryLater(let seconds):
            self.init(what, subject, reported: .tryLater(.seconds(seconds)))
        case .refused(let refusal): self.init(what, subject, reported: .init(refusal))
        case .clockNotManual:
            self.init(
                what, subject, why: "its clock is the system's",
                hint: "mount it with --manual-clock", status: .usage)
        case .busy(let reason):
            let hint =
                what.hasPrefix("cannot unmount")
                ? "end them, or ward unmount --force\(place)" : "try again"
            self.init(what, subject, why: reason, hint: hint, status: .temporary)
        case .invalidPasscode(let reason):
            self.init(what, subject, why: reason, status: .badData)
        case .failed(let failed, let why):
            self.init(what, subject, why: "\(failed): \(why)", status: .inputOutput)
        case .locked:
            self.init(
                what, subject, why: "it is locked", hint: "ward unlock\(place)", status: .locked)
        case .kernelKeepsPages(let reason):
            self.init(
                what, subject, why: reason,
                hint: "start the machine with another kernel, and report this one",
                status: .unavailable)
        }
    }
}
