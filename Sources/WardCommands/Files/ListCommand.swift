import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardSystem

struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "ls",
        abstract: "List names with their class and whether they can be read now.",
        discussion: """
            The second column says whether a file of that class can be opened in the present lock \
            state. Directories have a class (that of new files in them) and no key; links, pipes \
            and sockets have neither. It works in every state: names, sizes and times need no \
            passcode.

            -l adds mode, owner, size in bytes and time of the last change; -d shows a directory \
            itself; -R goes on with each directory in it, after a failure too, and follows no links.

            Examples:
              ward ls ~/papers
              ward ls -l ~/papers/diary
              ward ls -d ~/papers/diary                        the class of new files in it
              ward ls -R ~/papers
              ward ls --json ~/papers | jq -r 'select(.readable == false) | .name'
            """)

    @Argument(help: "A directory or file of a mounted volume.", completion: .file())
    var path: String = "."
    @Flag(name: .shortAndLong, help: "Mode, owner, size and time, too.") var long = false
    @Flag(name: .shortAndLong, help: "The directory itself, not what is in it.")
    var directory = false
    @Flag(name: [.customShort("R"), .long], help: "Everything in the directories as well.")
    var recursive = false
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let what = "cannot list"
        guard FileClass.isOnWard(path) || (try? Syscall.stat(path)) == nil else {
            throw FileClass.notOnWard(what, path)
        }
        let status = try VolumeConnection(what, path: path).status()
        let open = Set(status.classes.filter(\.available).map(\.letter))
        let entries: [ListedEntry]
        do {
            if recursive, !directory, try listAll(open, console) { return }
            entries = try ListedEntry.entries(at: path, itself: directory)
        } catch let error as Errno {
            throw CommandFailure(what, path, errno: error)
        }
        if console.isJSON {
            console.results(entries.lazy.map { $0.json($0.readable(open)).text() })
            return
        }
        let columns = long ? ListColumns(entries) : nil
        console.results(entries.lazy.map { $0.line(open, columns, console.output) })
    }

    /// Lists recursively; returns false where the path is no directory.
    private func listAll(_ open: Set<String>, _ console: Console) throws -> Bool {
        DescriptorLimit.raise()
        let node = try OwnedDescriptor(opening: path, OpenFlag.path)
        let status = try Syscall.fstat(node.rawValue)
        guard status.st_mode & S_IFMT == S_IFDIR else { return false }
        let top = try OwnedDescriptor(
            opening: "/proc/self/fd/\(node.rawValue)", O_RDONLY | O_DIRECTORY)
        var list = RecursiveList(open: open, isLong: long, console: console)
        list.list(top.rawValue, device: status.st_dev, path: path)
        list.finish()
        if list.failed > 0 { throw ExitCode(ExitStatus.someFailed.rawValue) }
        return true
    }
}

/// The columns of `-l`, wide enough for all entries.
struct ListColumns {
    private let ownerWidth: Int
    private let sizeWidth: Int

    init(_ entries: [ListedEntry]) {
        ownerWidth = entries.map { $0.owner.count }.max() ?? 0
        sizeWidth = entries.map { Text.grouped($0.sizeBytes).count }.max() ?? 0
    }

    func text(_ entry: ListedEntry) -> String {
        entry.modeText + "  " + Text.padded(entry.owner, ownerWidth) + "  "
            + Text.paddedLeft(Text.grouped(entry.sizeBytes), sizeWidth) + "  "
            + LocalTime.minute(entry.modified) + "  "
    }
}

/// An entry of `ward ls`.
struct ListedEntry {
    enum Kind: String {
        case file, directory, link, other
    }

    var name: [UInt8]
    var kind: Kind
    var protectionClass: ProtectionClass?
    /// The target of a symbolic link.
    var target: [UInt8]?
    /// The complete `st_mode`.
    var mode: mode_t
    var uid: uid_t
    var gid: gid_t
    var sizeBytes: Int
    /// The last change of the content, in time since 1970.
    var modified: timespec

    /// The mode as ls(1) shows it: "-rw-r--r--".
    var modeText: String {
        let letter =
            switch mode & S_IFMT {
            case S_IFDIR: "d"
            case S_IFLNK: "l"
            case S_IFIFO: "p"
            case S_IFSOCK: "s"
            case S_IFCHR: "c"
            case S_IFBLK: "b"
            default: "-"
            }
        let special: [(mode_t, Character, Character)] = [
            (0o4000, "s", "S"), (0o2000, "s", "S"), (0o1000, "t", "T"),
        ]
        var text = letter
        for (index, (bit, with, without)) in special.enumerated() {
            let rights = mode >> (6 - 3 * mode_t(index))
            text += rights & 4 != 0 ? "r" : "-"
            text += rights & 2 != 0 ? "w" : "-"
            let runs = rights & 1 != 0
            text.append(mode & bit != 0 ? (runs ? with : without) : runs ? "x" : "-")
        }
        return text
    }

    /// The owner, such as "anna:users"; numbers where there is no name.
    var owner: String {
        let user = getpwuid(uid).map { String(cString: $0.pointee.pw_name) } ?? "\(uid)"
        let group = getgrgid(gid).map { String(cString: $0.pointee.gr_name) } ?? "\(gid)"
        return user + ":" + group
    }

    /// A line of the list. `open`: the classes that can be opened now.
    func line(_ open: Set<String>, _ columns: ListColumns?, _ style: Style) -> String {
        let letter = Text.padded(protectionClass?.letter ?? "-", 2)
        let answer =
            switch readable(open) {
            case true?: style.green("yes")
            case false?: style.red("no ")
            case nil: "-  "
            }
        let printable = Text.printable(name)
        let shown = kind == .directory ? style.blue(printable) + "/" : printable
        let pointer = target.map { " -> " + Text.printable($0) } ?? ""
        return "\(letter)  \(answer)  \(columns?.text(self) ?? "")\(shown)\(pointer)"
    }

    /// Whether the file's content can be opened now; nil for entries without content.
    func readable(_ open: Set<String>) -> Bool? {
        guard kind == .file, let protectionClass else { return nil }
        return open.contains(protectionClass.letter)
    }

    /// `directory`: the entry's directory, in lists of several directories.
    func json(_ readable: Bool?, in directory: String? = nil) -> JSONValue {
        let text = String(decoding: name, as: UTF8.self)
        return .object(present: [
            ("name", .string(text)),
            ("path", directory.map { .string(Path.joined($0, text)) }),
            ("kind", .string(kind.rawValue)),
            ("letter", protectionClass.map { .string($0.letter) }),
            ("className", protectionClass.map { .string($0.name) }),
            ("readable", readable.map { .bool($0) }),
            ("target", target.map { .string(String(decoding: $0, as: UTF8.self)) }),
            ("mode", .string(modeText)), ("uid", .int(Int64(uid))), ("gid", .int(Int64(gid))),
            ("sizeBytes", .int(Int64(sizeBytes))),
            (
                "modified",
                .string(Timestamp.text(.seconds(modified.tv_sec) + .nanoseconds(modified.tv_nsec)))
            ),
        ])
    }

    /// The content of a directory. For a file, or with `itself`, the entry of `path` alone.
    static func entries(at path: String, itself: Bool) throws(Errno) -> [ListedEntry] {
        let node = try OwnedDescriptor(opening: path, OpenFlag.path)
        let status = try Syscall.fstat(node.rawValue)
        guard status.st_mode & S_IFMT == S_IFDIR, !itself else {
            return [ListedEntry(node.rawValue, status, name: Array(path.utf8))]
        }
        let directory = try OwnedDescriptor(
            opening: "/proc/self/fd/\(node.rawValue)", O_RDONLY | O_DIRECTORY)
        return try entries(of: directory.rawValue)
    }

    /// The content of an open directory, sorted by name. Several threads look at entries, because
    /// each look waits for the daemon.
    static func entries(of directory: Int32) throws(Errno) -> [ListedEntry] {
        let names = try DirectoryReading.names(in: directory)
        let found = Parallel.map(
            names.count, threads: Parallel.threadCount, share: 16, name: "ward-ls"
        ) { index in
            Result { () throws(Errno) in try ListedEntry(names[index], in: directory) }
        }
        var entries: [ListedEntry] = []
        for result in found {
            do throws(Errno) {
                entries.append(try result.get())
            } catch {
                if error != .noSuchFileOrDirectory { throw error }
            }
        }
        return entries
    }

    private init(_ name: [UInt8], in directory: Int32) throws(Errno) {
        let child = OwnedDescriptor(
            adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.openat(directory, name, OpenFlag.path | O_NOFOLLOW)
            })
        self.init(child.rawValue, try Syscall.fstat(child.rawValue), name: name)
    }

    private init(_ node: Int32, _ status: FileStatus, name: [UInt8]) {
        self.name = name
        mode = status.st_mode
        uid = status.st_uid
        gid = status.st_gid
        sizeBytes = Int(status.st_size)
        modified = status.st_mtim
        switch status.st_mode & S_IFMT {
        case S_IFREG: kind = .file
        case S_IFDIR: kind = .directory
        case S_IFLNK: kind = .link
        default: kind = .other
        }
        if kind == .link {
            var buffer = [UInt8](repeating: 0, count: 4096)
            let count = try? Syscall.readlinkat(node, "", &buffer, buffer.count)
            target = count.map { Array(buffer[0..<$0]) }
        } else if kind == .file || kind == .directory {
            let text = try? ExtendedAttribute.text(
                of: ExtendedAttribute.wardClass, path: "/proc/self/fd/\(node)")
            protectionClass = text.flatMap { ProtectionClass(spelling: $0) }
        }
    }
}
