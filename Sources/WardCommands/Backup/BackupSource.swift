import Glibc
import WardControl
import WardKeys
import WardSystem
import WardVolume

/// The backing directory that a backup is of, and what finds what belongs into it. Works in every
/// state, mounted or not: it needs the keys of this device, and no passcode.
struct BackupSource {
    /// As many as there are likely to be CPUs; a disk is not faster with more.
    private static let threads = 4

    /// The volume's directory, without symbolic links.
    let path: String
    let walk: BackupWalk
    /// Where it is mounted now; nil where nobody serves it.
    let mounted: FoundVolume?

    /// `named`: the volume's directory, or any path in its mount; `what` begins the sentence where
    /// that fails.
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

    /// Looks at everything, with progress; tells what could not be looked at. Returns whether all
    /// could.
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
