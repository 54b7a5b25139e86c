import Glibc
import WardConsole
import WardSystem

/// `ward ls -R`: the entries of a directory, then those of each subdirectory, as ls(1) shows them.
/// Goes on after a failure, follows no symbolic link and stays on the volume.
struct RecursiveList {
    private let open: Set<String>
    private let isLong: Bool
    private let console: Console
    private(set) var failed = 0
    private var listed = 0
    private var progress: ProgressLine
    private let showsProgress: Bool

    /// `open`: the classes that can be opened now.
    init(open: Set<String>, isLong: Bool, console: Console) {
        self.open = open
        self.isLong = isLong
        self.console = console
        progress = ProgressLine(console)
        // On a terminal the list itself shows the progress.
        showsProgress = !Console.isTerminal(1)
    }

    mutating func finish() { progress.clear() }

    mutating func list(_ directory: Int32, device: dev_t, path: String) {
        let entries: [ListedEntry]
        do throws(Errno) {
            entries = try ListedEntry.entries(of: directory)
        } catch {
            report(path, error)
            return
        }
        show(entries, path)
        for entry in entries where entry.kind == .directory {
            let inner = Path.joined(path, String(decoding: entry.name, as: UTF8.self))
            do throws(Errno) {
                let child = OwnedDescriptor(
                    adopting: try NodeName(bytes: entry.name).withCString { name throws(Errno) in
                        try Syscall.openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
                    })
                // Another file system mounted there does not belong to the volume.
                guard try Syscall.fstat(child.rawValue).st_dev == device else { continue }
                list(child.rawValue, device: device, path: inner)
            } catch {
                if error != .noSuchFileOrDirectory { report(inner, error) }
            }
        }
    }

    private mutating func show(_ entries: [ListedEntry], _ path: String) {
        let isFirst = listed == 0
        listed += entries.count + 1
        if showsProgress { progress.update("\(Text.grouped(listed)) names, \(path)") }
        if console.isJSON {
            console.results(
                entries.lazy.map { [open] in $0.json($0.readable(open), in: path).text() })
            return
        }
        let columns = isLong ? ListColumns(entries) : nil
        let head = (isFirst ? [] : [""]) + [Text.printable(path) + ":"]
        console.results(head + entries.map { $0.line(open, columns, console.output) })
    }

    private mutating func report(_ path: String, _ error: Errno) {
        failed += 1
        progress.clear()
        console.failure(CommandFailure("cannot list", path, errno: error))
    }
}
