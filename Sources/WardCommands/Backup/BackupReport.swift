import WardBackup
import WardConsole
import WardControl

/// The final report of `ward backup run`.
struct BackupReport {
    /// The number of changes shown one by one; the rest is only counted.
    private static let shownChanges = 20

    let source: BackupSource
    let command: [String]
    let code: Int32
    var fileCount = 0
    var directoryCount = 0
    var excludedCount = 0
    /// Whether the daemon held everything to the end; nil without a daemon.
    var isHeld: Bool?
    var changes: [BackupSnapshot.Change] = []
    /// Whether the second look saw everything.
    var isComplete = true
    var keybagChanged = false

    init(source: BackupSource, command: [String], code: Int32) {
        self.source = source
        self.command = command
        self.code = code
    }

    /// Prints to stderr, because stdout belongs to the command. As JSON it is the last line of
    /// stdout.
    func show(_ console: Console) {
        if console.isJSON { return console.json(json) }
        if console.isQuiet { return }
        for line in lines { Console.write("ward: backup: \(line)\n", to: 2) }
    }

    private var lines: [String] {
        var lines = [
            Text.count(fileCount, "file") + " in " + Text.count(directoryCount, "directory")
                + ", \(Text.grouped(excludedCount)) left out, "
                + (changes.isEmpty ? "nothing" : Text.grouped(changes.count))
                + " changed meanwhile"
        ]
        for change in changes.prefix(BackupReport.shownChanges) {
            lines.append("\(change.kind.rawValue): \(Text.printable(change.path))")
        }
        let rest = changes.count - BackupReport.shownChanges
        if rest > 0 { lines.append("and \(Text.grouped(rest)) more (--json has them all)") }
        if !isComplete { lines.append("not everything could be looked at again") }
        if isHeld == false { lines.append("the volume was unmounted meanwhile: nothing was held") }
        if keybagChanged {
            lines.append(
                "the passcode or the policy was changed meanwhile: run it again, or this copy may "
                    + "open with a recovery kit alone")
        }
        // The failure comes last, where readers look first; the lines above are about the volume.
        if code != 0 {
            lines.append(
                "failed: \(Text.printable(command[0])) ended with exit code \(code), so there may be no "
                    + "backup, or half of one")
        }
        return lines
    }

    private var json: JSONValue {
        .object(present: [
            ("volume", .string(source.path)), ("command", .array(command.map { .string($0) })),
            ("exitCode", .int(Int64(code))), ("files", .int(Int64(fileCount))),
            ("directories", .int(Int64(directoryCount))),
            ("excluded", .int(Int64(excludedCount))), ("mounted", .bool(isHeld != nil)),
            ("held", isHeld.map { .bool($0) }),
            (
                "changed",
                .array(
                    changes.map {
                        .object([
                            ("path", .string($0.path)), ("change", .string($0.kind.rawValue)),
                        ])
                    })
            ),
            ("complete", .bool(isComplete)), ("keybagChanged", .bool(keybagChanged)),
        ])
    }
}
