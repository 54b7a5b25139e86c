import CWardLinux
import Glibc
import WardConsole
import WardFormat
import WardSystem

/// The protection class of files, through the attribute `user.ward.class`.
enum FileClass {
    /// Reads the class. The error says where the path is not on a ward mount.
    static func read(path: String) throws(CommandFailure) -> ProtectionClass {
        let what = "cannot show the class of"
        do throws(Errno) {
            let text = try ExtendedAttribute.text(of: ExtendedAttribute.wardClass, path: path)
            if isOnWard(path), let value = ProtectionClass(spelling: text) { return value }
        } catch {
            guard error == .noData || error == .notSupported || error == .notPermitted else {
                throw CommandFailure(what, path, errno: error)
            }
            if isOnWard(path) {
                throw CommandFailure(
                    what, path, why: "only files and directories have one", status: .badData)
            }
        }
        throw notOnWard(what, path)
    }

    /// Whether the path is on a ward mount. Only FUSE counts: on another file system any user may
    /// have set an attribute of that name.
    static func isOnWard(_ path: String) -> Bool {
        guard ward_file_system_type(path) == FUSE_SUPER_MAGIC else { return false }
        if (try? ExtendedAttribute.value(of: ExtendedAttribute.wardVolume, path: path)) != nil {
            return true
        }
        // Special files have no user attributes, but their directory has.
        let parent = Path.parent(path)
        return (try? ExtendedAttribute.value(of: ExtendedAttribute.wardVolume, path: parent)) != nil
    }

    static func notOnWard(_ what: String, _ path: String) -> CommandFailure {
        CommandFailure(
            what, path, why: "it is not in a mounted volume",
            hint: "ward status lists the mounted volumes", status: .notAVolume)
    }

    /// Explains why a class could not be set. `owner`: the file's owner, if known.
    static func settingFailure(
        _ protectionClass: ProtectionClass, _ path: String, _ error: Errno, owner: uid_t? = nil
    ) -> CommandFailure {
        let what = "cannot set class \(protectionClass.letter) on"
        switch error {
        case .notPermitted where owner.map { $0 != geteuid() && geteuid() != 0 } ?? false:
            return CommandFailure(
                what, path,
                why: "it belongs to another user, who alone may weaken it; or a key is locked away",
                hint: "ward status shows the lock state, "
                    + "ls -ld \(Text.shellQuoted(path)) the owner",
                status: .notPermitted)
        case .notPermitted:
            return CommandFailure(
                what, path, why: "a key that is needed is locked away", hint: "ward unlock",
                status: .locked)
        case .permissionDenied:
            return CommandFailure(
                what, path, why: "permission denied: its owner may, and whoever may write it",
                hint: "ls -ld \(Text.shellQuoted(path)) shows whose it is",
                status: .notPermitted)
        case .notSupported, .noData: return notOnWard(what, path)
        case .invalidArgument where !protectionClass.isForSynchronised:
            return CommandFailure(
                what, path, why: "it is in a directory that is synchronised, which takes C or D",
                hint: "ward sync list shows it; move the file elsewhere first", status: .badData)
        case .ioError:
            return CommandFailure(
                what, path, why: "it is damaged, or nothing vouches for its class and its key",
                hint: "ward events tells which; ward class set --rekey "
                    + "\(protectionClass.letter) \(Text.shellQuoted(path)) gives it another key",
                status: .inputOutput)
        default: return CommandFailure(what, path, errno: error)
        }
    }
}
