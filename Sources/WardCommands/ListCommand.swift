import ArgumentParser
import Glibc
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
            and sockets have neither.

            Examples:
              ward ls ~/papers
              ward ls --json ~/papers | jq -r 'select(.readable == false) | .name'
            """)

    @Argument(help: "A directory or file of a mounted volume.", completion: .file())
    var path: String = "."
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let what = "cannot list"
        guard FileClass.isOnWard(path) || (try? Syscall.stat(path)) == nil else {
            throw FileClass.notOnWard(what, path)
        }
        let entries: [ListedEntry]
        do throws(Errno) {
            entries = try ListedEntry.entries(at: path)
        } catch {
            throw CommandFailure(what, path, errno: error)
        }
        let status = try VolumeConnection(what, path: path).status()
        let open = Set(status.classes.filter(\.available).map(\.letter))
        for entry in entries {
            let readable = entry.readable(open)
            if console.isJSON {
                console.json(entry.json(readable))
                continue
            }
            let letter = Text.padded(entry.protectionClass?.letter ?? "-", 2)
            let answer =
                switch readable {
                case true?: console.output.green("yes")
                case false?: console.output.red("no ")
                case nil: "-  "
                }
            let name = Text.printable(entry.name)
            let shown = entry.kind == .directory ? console.output.blue(name) + "/" : name
            let target = entry.target.map { " -> " + Text.printable($0) } ?? ""
            console.result("\(letter)  \(answer)  \(shown)\(target)")
        }
    }
}

/// One line of `ward ls`.
struct ListedEntry {
    enum Kind: String {
        case file, directory, link, other
    }

    var name: [UInt8]
    var kind: Kind
    var protectionClass: ProtectionClass?
    /// Of a symbolic link.
    var target: [UInt8]?

    /// Whether a file's content can be opened now; nil for what has no content of its own.
    func readable(_ open: Set<String>) -> Bool? {
        guard kind == .file, let protectionClass else { return nil }
        return open.contains(protectionClass.letter)
    }

    func json(_ readable: Bool?) -> JSONValue {
        .object(present: [
            ("name", .string(String(decoding: name, as: UTF8.self))),
            ("kind", .string(kind.rawValue)),
            ("letter", protectionClass.map { .string($0.letter) }),
            ("className", protectionClass.map { .string($0.name) }),
            ("readable", readable.map { .bool($0) }),
            ("target", target.map { .string(String(decoding: $0, as: UTF8.self)) }),
        ])
    }

    /// The content of a directory, or the one file that `path` is.
    static func entries(at path: String) throws(Errno) -> [ListedEntry] {
        let node = try OwnedDescriptor(opening: path, OpenFlag.path)
        let status = try Syscall.fstat(node.rawValue)
        guard status.st_mode & S_IFMT == S_IFDIR else {
            return [ListedEntry(node.rawValue, status, name: Array(path.utf8))]
        }
        let directory = try OwnedDescriptor(
            opening: "/proc/self/fd/\(node.rawValue)", O_RDONLY | O_DIRECTORY)
        var entries: [ListedEntry] = []
        for name in try DirectoryListing.names(in: directory.rawValue) {
            do throws(Errno) {
                let child = OwnedDescriptor(
                    adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                        try Syscall.openat(directory.rawValue, name, OpenFlag.path | O_NOFOLLOW)
                    })
                entries.append(
                    ListedEntry(child.rawValue, try Syscall.fstat(child.rawValue), name: name))
            } catch {
                if error != .noSuchFileOrDirectory { throw error }
            }
        }
        return entries
    }

    private init(_ node: Int32, _ status: FileStatus, name: [UInt8]) {
        self.name = name
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
