import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSystem

struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export", abstract: "Copy a volume's files out, in plain.",
        discussion: """
            Everything that can be read now is copied to DIRECTORY/files, with modes, times, owners (as \
            root), attributes, hard and symbolic links, special files and holes; the classes are listed \
            in DIRECTORY/ward-export.jsonl, for ward import. A file appears when all of it is there; \
            what can't be read is reported. Interrupted, or with something missing, it goes on where it \
            was when it is run again.

            What is in DIRECTORY is not protected any more.

            Examples:
              ward export ~/papers /media/usb/papers
              ward export ~/papers/diary diary
            """)

    private static let what = "cannot export"

    @Argument(help: "The mount point, or a directory in it.", completion: .directory)
    var mountpoint: String
    @Argument(help: "A new or empty directory, or an export to go on with.", completion: .directory)
    var directory: String
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let what = ExportCommand.what
        DescriptorLimit.raise()
        let source = try open(mountpoint)
        let head = try makeHead(mountpoint)
        let place = try prepare(head)
        let target: ExportTarget
        do throws(Errno) {
            target = try ExportTarget(place, head, console)
        } catch {
            throw CommandFailure(what, place, errno: error)
        }
        let copy = TreeCopy(
            .init(
                what: what, source: mountpoint, target: place,
                lockedHint: "ward unlock \(Text.shellQuoted(mountpoint)), then run it again"),
            target: target, targetRoot: target.files.rawValue, console)
        do throws(Errno) {
            try copy.run(from: source.rawValue)
            try target.finish(isComplete: copy.failed == 0)
        } catch {
            throw CommandFailure(what, place, errno: error)
        }
        if console.isJSON {
            console.json(copy.summary(place, isComplete: copy.failed == 0))
        } else {
            console.confirm("\(Text.printable(place)): \(copy.text)")
        }
        if copy.failed > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }

    private func open(_ path: String) throws(CommandFailure) -> OwnedDescriptor {
        guard FileClass.isOnWard(path) else {
            throw FileClass.notOnWard(ExportCommand.what, path)
        }
        do throws(Errno) {
            return try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
        } catch {
            throw CommandFailure(ExportCommand.what, path, errno: error)
        }
    }

    private func makeHead(_ path: String) throws(CommandFailure) -> ClassList.Head {
        do throws(Errno) {
            let real = try Path.real(path)
            let mountPoint = try MountTable().covering(real)?.mountPoint ?? real
            let inner = real.dropFirst(mountPoint.count)
            let volume = try ExtendedAttribute.text(
                of: ExtendedAttribute.wardVolume, path: path)
            return ClassList.Head(
                volume: volume, from: inner.isEmpty ? "/" : String(inner), isComplete: false)
        } catch {
            throw CommandFailure(ExportCommand.what, path, errno: error)
        }
    }

    /// Returns the target directory and makes it where it is missing. Throws where it holds other
    /// files, or lies in the volume or its backing directory.
    private func prepare(_ head: ClassList.Head) throws(CommandFailure) -> String {
        let what = "cannot export to"
        let place: String
        do throws(Errno) {
            place = try Path.realParent(directory)
        } catch {
            throw CommandFailure(what, directory, errno: error)
        }
        // Checked before anything is made there.
        for path in [place, Path.parent(place)] where FileClass.isOnWard(path) {
            let volume = try? ExtendedAttribute.text(of: ExtendedAttribute.wardVolume, path: path)
            if volume == head.volume {
                throw CommandFailure(
                    what, directory, why: "it is in the volume itself",
                    hint: "choose a directory elsewhere", status: .cannotCreate)
            }
        }
        let backing = try VolumeConnection(ExportCommand.what, path: mountpoint).status().volume
        if PathBytes.isInside(place, backing)
            || PathBytes.isInside((try? Path.real(place)) ?? "/", backing)
        {
            throw CommandFailure(
                what, directory, why: "it is in the volume's directory of ciphertext",
                hint: "choose a directory elsewhere", status: .cannotCreate)
        }
        do throws(Errno) {
            try Syscall.mkdirat(AT_FDCWD, place, 0o700)
        } catch {
            if error != .fileExists { throw CommandFailure(what, directory, errno: error) }
        }
        try checkContent(place, head, what)
        return place
    }

    private func checkContent(
        _ place: String, _ head: ClassList.Head, _ what: String
    ) throws(CommandFailure) {
        let found: ClassList.Head?
        let isEmpty: Bool
        do {
            found = try ClassList.head(Path.joined(place, ClassList.fileName))
            let listing = try OwnedDescriptor(opening: place, O_RDONLY | O_DIRECTORY)
            isEmpty = try DirectoryReading.names(in: listing.rawValue).isEmpty
        } catch let error as Errno {
            throw CommandFailure(what, directory, errno: error)
        } catch {
            throw CommandFailure(
                what, directory, why: "there is a \(ClassList.fileName) in it that is none",
                hint: "choose an empty directory", status: .cannotCreate)
        }
        guard let found else {
            if isEmpty { return }
            throw CommandFailure(
                what, directory, why: "it is not empty", hint: "choose an empty directory",
                status: .cannotCreate)
        }
        guard found.volume == head.volume, found.from == head.from else {
            throw CommandFailure(
                what, directory, why: "there is an export of something else in it",
                hint: "choose an empty directory", status: .cannotCreate)
        }
        if found.isComplete {
            throw CommandFailure(
                what, directory, why: "there is a complete export of it already",
                hint: "choose an empty directory", status: .cannotCreate)
        }
    }
}
