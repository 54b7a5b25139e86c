import Glibc
import WardBackup
import WardConsole
import WardControl
import WardKeys
import WardSystem
import WardVolume

/// The backing directory to back up, with a walk over the files that belong to the backup. Works
/// mounted or not and in every state. It needs this device's keys but no passcode.
struct BackupSource {
    /// About the usual number of CPUs; a disk gains nothing from more.
    private static let threads = 4

    /// The volume's directory, without symbolic links.
    let path: String
    let walk: BackupWalk
    /// The mount; nil where no daemon serves the volume.
    let mounted: FoundVolume?

    /// `named` is the volume's directory, or any path in its mount. `what` begins the error
    /// message.
    init(_ named: String, _ what: String) throws(CommandFailure) {
        path = try VolumeDirectory.path(named, what)
        mounted = RuntimeDirectory().serving(path)
        walk = try BackupSource.makeWalk(path, BackupSource.volumeKey(of: path, what), what)
    }

    private static func volumeKey(
        of path: String, _ what: String
    ) throws(CommandFailure) -> SecretBytes {
        do throws(KeybagError) {
            return try KeybagStore.volumeKey(
                volumePath: path, stateRoot: StateDirectory.defaultRoot())
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    private static func makeWalk(
        _ path: String, _ key: borrowing SecretBytes, _ what: String
    ) throws(CommandFailure) -> BackupWalk {
        do throws(VolumeOpenError) {
            return try BackupWalk(backingPath: path, volumeKey: key)
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    /// Walks over everything, shows progress and reports problems. Returns true where everything
    /// could be read.
    func look(
        _ what: String, stamps: Bool = false, _ console: Console,
        _ body: (BackupDirectory) -> Void
    ) throws(CommandFailure) -> Bool {
        var progress = ProgressLine(console)
        var entries = 0
        let problems: BackupProblems
        do throws(VolumeOpenError) {
            problems = try walk.run(threads: BackupSource.threads, stamps: stamps) { directory in
                entries += directory.entries.count
                progress.update("\(Text.grouped(entries)) names looked at")
                body(directory)
            }
        } catch {
            progress.clear()
            throw CommandFailure(what, path, error)
        }
        progress.clear()
        for problem in problems {
            let place = Path.joined(path, String(decoding: problem.path, as: UTF8.self))
            if let errno = problem.errno {
                console.failure(CommandFailure("cannot list", place, errno: errno))
            } else {
                console.note("\(Text.printable(place)): \(problem.reason)")
            }
        }
        return !problems.contains { $0.errno != nil }
    }
}
