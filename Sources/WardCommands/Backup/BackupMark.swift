import ArgumentParser
import CWardLinux
import Glibc
import WardBackup
import WardConsole
import WardControl
import WardSystem

/// Sets or removes the mark that keeps a file out of backups. Goes on after a failed path and
/// reports each failure.
enum BackupMark {
    static func set(_ isExcluded: Bool, _ paths: [String], _ console: Console) throws {
        var failed = 0
        for path in paths {
            do throws(CommandFailure) {
                try set(isExcluded, path)
                if !isExcluded, let above = markedDirectory(above: path) {
                    console.note(
                        "\(Text.printable(path)) is left out all the same: \(Text.printable(above)) is marked"
                    )
                }
                if console.isJSON {
                    console.json(
                        .object([("path", .string(path)), ("excluded", .bool(isExcluded))]))
                } else {
                    console.confirm(
                        Text.printable(path)
                            + (isExcluded ? ": backups leave it out" : ": backups take it"))
                }
            } catch {
                if paths.count == 1 { throw error }
                console.failure(error)
                failed += 1
            }
        }
        if failed > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }

    private static func set(_ isExcluded: Bool, _ path: String) throws(CommandFailure) {
        let what = isExcluded ? "cannot exclude" : "cannot include"
        let refusal: CommandFailure?
        do throws(Errno) {
            let node = try OwnedDescriptor(opening: path, OpenFlag.path | O_NOFOLLOW)
            let type = try Syscall.fstat(node.rawValue).st_mode & S_IFMT
            let here = "/proc/self/fd/\(node.rawValue)"
            refusal = self.refusal(what, isExcluded, path, here, type)
            if refusal == nil { try set(isExcluded, at: here) }
        } catch {
            throw CommandFailure(what, path, errno: error)
        }
        if let refusal { throw refusal }
    }

    private static func set(_ isExcluded: Bool, at place: String) throws(Errno) {
        let result =
            isExcluded
            ? ward_setxattr(place, BackupWalk.exclusionAttribute, "1", 1, 0)
            : ward_removexattr(place, BackupWalk.exclusionAttribute)
        guard result == 0 || (!isExcluded && errno == ENODATA) else {
            throw Errno(rawValue: errno)
        }
    }

    private static func refusal(
        _ what: String, _ isExcluded: Bool, _ path: String, _ here: String, _ type: mode_t
    ) -> CommandFailure? {
        guard FileClass.isOnWard(here) || FileClass.isOnWard(path) else {
            return FileClass.notOnWard(what, path)
        }
        guard type == S_IFREG || type == S_IFDIR else {
            return CommandFailure(
                what, path, why: "only files and directories carry the mark",
                hint: type == S_IFLNK
                    ? "name what the symbolic link leads to" : "mark the directory it is in",
                status: .badData)
        }
        guard isExcluded, type == S_IFDIR, isMountPoint(path) else { return nil }
        return CommandFailure(
            what, path, why: "nothing of the volume would be backed up",
            hint: "name what is in it", status: .badData)
    }

    private static func isMountPoint(_ path: String) -> Bool {
        guard let real = try? Path.real(path), let table = try? MountTable() else { return false }
        return table.entry(at: real) != nil
    }

    private static func markedDirectory(above path: String) -> String? {
        guard var place = try? Path.real(path) else { return nil }
        while true {
            let parent = Path.parent(place)
            guard parent != place, FileClass.isOnWard(parent) else { return nil }
            if ward_getxattr(parent, BackupWalk.exclusionAttribute, nil, 0) >= 0 { return parent }
            place = parent
        }
    }
}
