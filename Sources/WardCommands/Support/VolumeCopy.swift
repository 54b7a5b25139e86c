import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// The directory of a volume to adopt. Holds the lock that keeps daemons away.
struct VolumeCopy: ~Copyable {
    /// Absolute path.
    let path: String
    private let hold: VolumeHold

    private static let what = AdoptCommand.what

    /// Throws where the path is no volume, is part of a mount, or the volume is mounted by any
    /// process.
    static func hold(_ named: String) throws(CommandFailure) -> VolumeCopy {
        if FileClass.isOnWard(named) { throw insideMount(named) }
        let path = try resolve(named)
        if FileClass.isOnWard(path) { throw insideMount(path) }
        try requireDirectory(path)
        try requireVolume(path, what)
        return VolumeCopy(path: path, hold: try takeLock(path))
    }

    /// Requires at least one file of a volume's root.
    static func requireVolume(_ path: String, _ what: String) throws(CommandFailure) {
        var status = FileStatus()
        let own = [
            Keybag.fileName, Keybag.copyFileName, VolumeStateRecord.fileName,
            DirectoryRecord.linkName,
        ]
        guard own.contains(where: { lstat(Path.joined(path, $0), &status) == 0 }) else {
            throw CommandFailure(
                what, path, why: "it is not a ward volume",
                hint: "name the directory with ward.keybag in it", status: .notAVolume)
        }
    }

    private static func resolve(_ named: String) throws(CommandFailure) -> String {
        do throws(Errno) {
            return try Path.real(named)
        } catch {
            throw unusable(named, error)
        }
    }

    private static func requireDirectory(_ path: String) throws(CommandFailure) {
        do throws(Errno) {
            _ = try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
        } catch {
            throw unusable(path, error)
        }
    }

    private static func unusable(_ path: String, _ error: Errno) -> CommandFailure {
        let hint = "name the directory of the copy"
        if error == .notDirectory {
            return CommandFailure(
                what, path, why: "it is not a directory, so it is not a ward volume", hint: hint,
                status: .notAVolume)
        }
        return CommandFailure(what, path, errno: error, hint: hint, status: .noInput)
    }

    private static func insideMount(_ named: String) -> CommandFailure {
        let connection = try? VolumeConnection(what, path: named)
        guard let status = try? connection?.status() else {
            return CommandFailure(
                what, named, why: "it is inside a mounted volume",
                hint: "name a directory that is not under a ward mount", status: .usage)
        }
        return CommandFailure(
            what, named, why: "it is inside the mount of \(Text.printable(status.volume))",
            hint: "to adopt that volume: ward unmount \(Text.shellQuoted(status.mountpoint)), then "
                + "ward adopt \(Text.shellQuoted(status.volume)) --recovery-kit FILE",
            status: .usage)
    }

    /// Takes the lock that daemons hold. On failure the mount table names the mount. A file system
    /// without locks gives no protection against a daemon on another machine.
    private static func takeLock(_ path: String) throws(CommandFailure) -> VolumeHold {
        do throws(Errno) {
            return try VolumeHold(path)
        } catch {
            guard error == .wouldBlock else { throw unusable(path, error) }
            var failure = VolumeDirectory.inUse(what, path)
            if let hint = failure.hint, hint.hasPrefix("ward unmount") {
                failure.hint = hint + ", then adopt it"
            }
            throw failure
        }
    }

    /// Refuses an adoption as far as possible before the user types a code.
    borrowing func check(
        _ file: ExistingRecoveryKit, replaces: Bool
    ) throws(CommandFailure) {
        let path = path
        do throws(KeybagError) {
            try KeybagStore.checkAdoption(
                volumePath: path, stateRoot: StateDirectory.defaultRoot(), kit: file.kit,
                replacesDeviceKeys: replaces)
        } catch {
            throw CommandFailure(VolumeCopy.what, path, error)
        }
        // The keys that --replace would replace are in use.
        if let other = RuntimeDirectory().mounted().first(where: { $0.uuid == file.uuid }) {
            throw CommandFailure(
                VolumeCopy.what, path,
                why: "the volume it is a copy of is mounted on \(Text.printable(other.mountpoint))",
                hint: "ward unmount \(Text.shellQuoted(other.mountpoint)), then adopt it",
                status: .temporary)
        }
    }

    /// Checks that the kit's volume key belongs to this volume, and whether the copy was made while
    /// in use.
    borrowing func examine(
        _ keys: borrowing RecoveredKeys, countsAsInUse: Bool
    ) throws(CommandFailure) -> CopyStanding {
        let standing: CopyStanding
        let volumeKey = try volumeKey(keys)
        do throws(VolumeOpenError) {
            standing = try Volume.examineCopy(backingPath: path, volumeKey: volumeKey)
        } catch {
            throw CopyProblem.failure(VolumeCopy.what, path, error)
        }
        if case .unknown(let reason) = standing, !countsAsInUse {
            throw CommandFailure(
                VolumeCopy.what, path,
                why:
                    "its state record, \(VolumeStateRecord.fileName), does not say whether it was in "
                    + "use when it was copied: \(reason)",
                hint: "copy that file again, or accept what a copy in use can have half of: "
                    + "--copied-in-use", status: .damaged)
        }
        return standing
    }

    /// The copy's standing between the formats. Throws where the kit and the owner do not vouch for
    /// it. `copy` is the result of `examine`.
    borrowing func judgeFormat(
        _ keys: borrowing RecoveredKeys, _ copy: CopyStanding, takesOlder: Bool
    ) throws(CommandFailure) -> FormatStanding {
        let standing = Volume.format(ofCopy: path, copy, takesOlder: takesOlder)
        guard standing.vouched(byKit: keys.format, takesOlder: takesOlder) == nil else {
            return standing
        }
        let found =
            standing.isUpgrading
            ? "the copy is between the formats" : "the copy has format \(standing.format.rawValue)"
        let kit =
            keys.format == .version1
            ? "the kit does not tell whether the upgrade has ended since"
            : "the kit was made in format \(keys.format.rawValue)"
        throw CommandFailure(
            VolumeCopy.what, path, why: "\(found), and \(kit)",
            hint: "adopt a copy from after the upgrade. If you know that this one is from before "
                + "its end: --older-format", status: .damaged)
    }

    borrowing func acceptInUse(
        _ keys: borrowing RecoveredKeys, _ standing: FormatStanding
    ) throws(CommandFailure) {
        let volumeKey = try volumeKey(keys)
        do throws(VolumeOpenError) {
            try Volume.acceptCopyInUse(
                backingPath: path, standing: standing, volumeKey: volumeKey)
        } catch {
            throw CommandFailure(VolumeCopy.what, path, error)
        }
    }

    private borrowing func volumeKey(
        _ keys: borrowing RecoveredKeys
    ) throws(CommandFailure) -> SecretBytes {
        do throws(KeybagError) {
            return try keys.volumeKey()
        } catch {
            throw CommandFailure(VolumeCopy.what, path, error)
        }
    }

    /// Whether the file system stores no user attributes.
    var storesNoAttributes: Bool {
        getxattr(path, "user.ward.mode", nil, 0) == -1 && errno == EOPNOTSUPP
    }
}

/// Explains why the root of a copy does not open.
enum CopyProblem {
    static func failure(
        _ what: String, _ path: String, _ error: VolumeOpenError
    ) -> CommandFailure {
        var status = FileStatus()
        let record = Path.joined(path, DirectoryRecord.linkName)
        guard error.path == record else {
            var failure = CommandFailure(what, path, error)
            if failure.hint == nil { failure.hint = "copy \(Text.shellQuoted(error.path)) again" }
            return failure
        }
        if lstat(record, &status) == 0, status.st_mode & S_IFMT == S_IFLNK {
            return CommandFailure(
                what, path, why: "\(error.reason) (\(record)): damaged, or of another volume",
                hint: "copy \(Text.shellQuoted(record)) again; ward recovery show FILE says which "
                    + "volume the kit is of", status: .damaged)
        }
        if lstat(record + ".rclonelink", &status) == 0 {
            return CommandFailure(
                what, path,
                why: "its symbolic links are files that end in .rclonelink: rclone wrote them down "
                    + "and did not make links of them again",
                hint: "copy it back with: rclone copy --links --metadata", status: .damaged)
        }
        return CommandFailure(
            what, path,
            why:
                "the symbolic link \(DirectoryRecord.linkName), its root's record, is missing: the "
                + "tool that copied it left symbolic links out",
            hint:
                "copy it again with links and extended attributes: cp -a, rsync -aX, tar --xattrs, "
                + "rclone --links --metadata", status: .damaged)
    }
}
