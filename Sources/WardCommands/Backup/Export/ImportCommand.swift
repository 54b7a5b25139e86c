import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSystem

struct ImportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import", abstract: "Copy files into a volume, each with its class.",
        discussion: """
            Takes what ward export wrote, each file with its class from its first byte, or any other \
            directory: then files get the class of the directory they are put in. With modes, times, \
            owners (as root), attributes, links, special files and holes.

            A directory that is not there is made, in a volume. Nothing is overwritten: a file whose \
            name is taken by another is reported, and stays out; one that is there already is passed \
            over, so that an import can be run again.

            Examples:
              ward import /media/usb/papers ~/papers
              ward import ~/Documents ~/papers/documents
            """)

    private static let what = "cannot import"

    @Argument(help: "A directory that ward export made, or any other.", completion: .directory)
    var directory: String
    @Argument(
        help: "The mount point, or a directory in it, which may be new.", completion: .directory)
    var mountpoint: String
    @Flag(help: "Take an export that is not complete, too.") var incomplete = false
    @Flag(help: ArgumentHelp("As on kernels before 6.2.", visibility: .private))
    var staged = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let what = ImportCommand.what
        DescriptorLimit.raise()
        let list = try readList()
        let sourcePath = list == nil ? directory : Path.joined(directory, ExportTarget.filesName)
        let isNew = try makeTarget()
        let source: OwnedDescriptor
        do throws(CommandFailure) {
            source = try open(sourcePath)
        } catch {
            if isNew { rmdir(mountpoint) }
            throw error
        }
        let target: ImportTarget
        do throws(Errno) {
            target = try ImportTarget(mountpoint, list, isStaged: staged, console)
        } catch {
            throw CommandFailure("cannot import to", mountpoint, errno: error)
        }
        let copy = TreeCopy(
            .init(
                what: what, source: sourcePath, target: mountpoint,
                lockedHint: "ward unlock \(Text.shellQuoted(mountpoint)), then run it again"),
            target: target, targetRoot: target.root.rawValue, console)
        do throws(Errno) {
            try copy.run(from: source.rawValue, isNew: isNew)
        } catch {
            throw CommandFailure(what, sourcePath, errno: error)
        }
        try makeDurable()
        if console.isJSON {
            console.json(copy.summary(mountpoint, isComplete: copy.failed == 0))
        } else {
            console.confirm("\(Text.printable(mountpoint)): \(copy.text)")
        }
        if copy.failed > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }

    /// Makes the target directory in a volume where it is missing. Returns true where it did.
    private func makeTarget() throws(CommandFailure) -> Bool {
        let what = "cannot import to"
        if access(mountpoint, F_OK) == 0 || errno != ENOENT {
            guard FileClass.isOnWard(mountpoint) else {
                throw FileClass.notOnWard(what, mountpoint)
            }
            return false
        }
        var trimmed = mountpoint
        while trimmed.count > 1, trimmed.hasSuffix("/") { trimmed.removeLast() }
        let parent = Path.parent(trimmed)
        guard access(parent, F_OK) == 0 else {
            throw CommandFailure(
                what, mountpoint, why: "there is no directory \(Text.printable(parent))",
                hint: "mkdir -p \(Text.shellQuoted(parent))", status: .noInput)
        }
        guard FileClass.isOnWard(parent) else { throw FileClass.notOnWard(what, mountpoint) }
        do throws(Errno) {
            try Syscall.mkdirat(AT_FDCWD, mountpoint, 0o700)
        } catch {
            throw CommandFailure(what, mountpoint, errno: error)
        }
        return true
    }

    private func open(_ path: String) throws(CommandFailure) -> OwnedDescriptor {
        let isAround: Bool
        do throws(Errno) {
            let source = try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
            isAround = PathBytes.isInside(try Path.real(mountpoint), try Path.real(path))
            if !isAround { return source }
        } catch {
            throw CommandFailure(ImportCommand.what, path, errno: error)
        }
        throw CommandFailure(
            ImportCommand.what, directory, why: "the volume is in it",
            hint: "name the directories in it one by one", status: .badData)
    }

    /// Reads the list of classes; nil for a directory without one.
    private func readList() throws(CommandFailure) -> ClassList? {
        let what = ImportCommand.what
        let path = Path.joined(directory, ClassList.fileName)
        do {
            guard let head = try ClassList.head(path) else { return nil }
            let list = try ClassList(reading: path)
            if head.isComplete || (incomplete && !list.classes.isEmpty) { return list }
            throw CommandFailure(
                what, directory,
                why: list.classes.isEmpty
                    ? "its export was interrupted, and there is no list of classes yet"
                    : "not everything was exported",
                hint: list.classes.isEmpty
                    ? "finish it with ward export, or import "
                        + Text.shellQuoted(Path.joined(directory, ExportTarget.filesName))
                        + " without classes"
                    : "finish it with ward export, or ward import --incomplete",
                status: .badData)
        } catch let failure as CommandFailure {
            throw failure
        } catch let mistake as ClassList.Mistake {
            throw CommandFailure(
                what, path, why: mistake.reason,
                hint: "import \(Text.shellQuoted(Path.joined(directory, ExportTarget.filesName))) "
                    + "without classes, or restore the list", status: .badData)
        } catch let error as Errno {
            throw CommandFailure(what, path, errno: error)
        } catch {
            preconditionFailure("nothing else is thrown")
        }
    }

    /// Syncs the backing store: the daemon has everything, but it may not be durable yet.
    private func makeDurable() throws(CommandFailure) {
        let what = "cannot make durable what was imported to"
        let volume = try VolumeConnection(what, path: mountpoint).status().volume
        do throws(Errno) {
            let store = try OwnedDescriptor(opening: volume, O_RDONLY | O_DIRECTORY)
            try Syscall.syncFileSystem(of: store.rawValue)
        } catch {
            throw CommandFailure(what, mountpoint, errno: error)
        }
    }
}
