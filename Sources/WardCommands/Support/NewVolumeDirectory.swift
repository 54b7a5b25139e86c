import CWardLinux
import Glibc
import WardConsole
import WardSystem
import WardVolume

/// The directory for a new volume: a new one, or an empty one. Holds the lock until the volume
/// exists.
struct NewVolumeDirectory: ~Copyable {
    /// Absolute path.
    let path: String
    private let wasMade: Bool
    private var hold: VolumeHold

    private static let what = "cannot make a volume in"

    static func prepare(
        _ wanted: String, pageBytes: Int
    ) throws(CommandFailure) -> NewVolumeDirectory {
        let path = try resolve(wanted)
        if FileClass.isOnWard(path) || FileClass.isOnWard(Path.parent(path)) {
            throw CommandFailure(
                what, path, why: "it is inside a mounted volume",
                hint: "choose a directory that is not under a ward mount", status: .cannotCreate)
        }
        let wasMade = mkdir(path, 0o700) == 0
        if !wasMade && errno != EEXIST {
            throw CommandFailure(what, path, errno: Errno(rawValue: errno), status: .cannotCreate)
        }
        var directory = NewVolumeDirectory(
            path: path, wasMade: wasMade, hold: try hold(path))
        do throws(CommandFailure) {
            try directory.check(pageBytes)
            if wasMade { try directory.makeNameDurable() }
        } catch {
            if wasMade { _ = DirectoryTree.remove(path) }
            throw error
        }
        return directory
    }

    /// Takes the lock without making its file, because the directory may be unsuitable for a
    /// volume.
    private static func hold(_ path: String) throws(CommandFailure) -> VolumeHold {
        do throws(Errno) {
            return try VolumeHold(path, makesFile: false)
        } catch {
            if error == .wouldBlock {
                throw CommandFailure(
                    what, path, why: "another ward is at work in it", hint: "wait for that one",
                    status: .temporary)
            }
            throw CommandFailure(what, path, errno: error, status: .cannotCreate)
        }
    }

    /// Follows symbolic links, also in the last component where the target exists.
    private static func resolve(_ wanted: String) throws(CommandFailure) -> String {
        if let path = try? Path.real(wanted) { return path }
        do throws(Errno) {
            return try Path.realParent(wanted)
        } catch {
            throw CommandFailure(
                what, wanted, why: "the directory it goes into: \(Text.reason(error))",
                hint: "mkdir -p \(Text.shellQuoted(Path.parent(wanted)))", status: .noInput)
        }
    }

    private mutating func check(_ pageBytes: Int) throws(CommandFailure) {
        let what = NewVolumeDirectory.what
        do throws(Errno) {
            let directory = hold.directoryDescriptor
            let names = try DirectoryReading.names(in: directory)
            if names.contains(Array("ward.keybag".utf8)) {
                throw Errno.fileExists
            }
            if !names.isEmpty {
                // Files of an earlier `ward init` that was interrupted.
                guard Volume.isUnfinishedRoot(directory, names) else {
                    throw Errno.directoryNotEmpty
                }
                DirectoryTree.empty(directory, but: VolumeHold.fileName)
            }
            let blockBytes = Int(try Syscall.fstatvfs(directory).f_bsize)
            if blockBytes < pageBytes { throw Errno.outOfRange }
            try hold.makeFile()
        } catch {
            switch error {
            case .fileExists:
                throw CommandFailure(
                    what, path, why: "there is a volume in it already",
                    hint: "ward mount \(Text.shellQuoted(path)) MOUNTPOINT", status: .cannotCreate)
            case .directoryNotEmpty:
                throw CommandFailure(
                    what, path, why: "it is not empty",
                    hint: "name a directory that does not exist yet", status: .cannotCreate)
            case .outOfRange:
                throw CommandFailure(
                    what, path, why: "its file system has blocks smaller than a page",
                    hint: "ward init \(Text.shellQuoted(path)) --page-size 512", status: .usage)
            case .wouldBlock:
                throw CommandFailure(
                    what, path, why: "another ward is at work in it", hint: "wait for that one",
                    status: .temporary)
            default: throw CommandFailure(what, path, errno: error, status: .cannotCreate)
            }
        }
    }

    /// Makes the volume's name durable; the volume's own files are already synced.
    private borrowing func makeNameDurable() throws(CommandFailure) {
        do throws(Errno) {
            let parent = try OwnedDescriptor(
                opening: Path.parent(path), O_RDONLY | O_DIRECTORY)
            try Syscall.fsync(parent.rawValue)
        } catch .permissionDenied {
            // The directory above can't be read, so it can't be synced; the volume's own sync must
            // suffice.
        } catch {
            throw CommandFailure(
                NewVolumeDirectory.what, path, errno: error, status: .cannotCreate)
        }
    }

    /// Removes everything that was made: the directory was empty or missing before.
    borrowing func undo() {
        if wasMade {
            _ = DirectoryTree.remove(path)
        } else {
            DirectoryTree.empty(hold.directoryDescriptor)
        }
    }
}
