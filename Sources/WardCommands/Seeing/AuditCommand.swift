import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardSimulation
import WardSystem

struct AuditCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "audit", abstract: "Find what is easily got wrong in a mounted volume.",
        discussion: """
            Reads classes, names and attributes of everything, in every lock state; changes nothing, \
            and is refused nothing. Contents are read only where two files of one size may be copies, \
            and only those whose class can be opened now: run it unlocked to compare the others. What \
            could not be compared, or looked at, is said.

            Findings:
            \(Finding.Kind.table)

            A program that synchronises is known by what it leaves: .stfolder (Syncthing), .sync_*.db, \
            ._sync_*.db, .csync_journal.db, .owncloudsync.log, .nextcloudsync.log (Nextcloud, \
            ownCloud), .dropbox.cache, .dropbox (Dropbox); around the mount point as well. Directories \
            that ward sync mark has marked count, too.

            Exit code: 0 nothing found, 15 something found, 1 nothing found but something could not be \
            looked at.

            Examples:
              ward audit ~/papers
              ward audit ~/papers --only protected-synced --only readable-copy
              ward audit --ignore protected-temporary --json | jq -r '.findings[].path'
            """)

    @OptionGroup var target: MountPointArgument
    @Option(
        help: "Look for this kind of finding alone; may be repeated.",
        completion: .list(Finding.Kind.allCases.map(\.rawValue)))
    var only: [FindingKind] = []
    @Option(
        help: "Leave this kind of finding out; may be repeated.",
        completion: .list(Finding.Kind.allCases.map(\.rawValue)))
    var ignore: [FindingKind] = []
    @Flag(help: "Print every finding, not just the first 50 of a kind.") var all = false
    @OptionGroup var options: ReportOptions

    private static let shownOfAKind = 50
    private static let what = "cannot audit"

    func validate() throws {
        if kinds.isEmpty {
            throw ValidationError("--only and --ignore leave nothing to look for")
        }
    }

    private var kinds: Set<Finding.Kind> {
        let named = only.isEmpty ? Finding.Kind.allCases : only.map(\.value)
        return Set(named).subtracting(ignore.map(\.value))
    }

    func run() throws {
        let console = options.console
        let connection = try target.connect(AuditCommand.what)
        let status = try connection.status()
        // An audit of a directory that can't be entered would find nothing.
        do throws(Errno) {
            _ = try Syscall.stat(status.mountpoint)
        } catch {
            throw CommandFailure(AuditCommand.what, status.mountpoint, errno: error)
        }
        var events: [ControlEvent] = []
        if !kinds.isDisjoint(with: [.removedUnread, .weakened]) {
            try connection.call { client throws(ControlError) in
                try client.monitor(last: .max, follow: false) { notice in
                    if case .event(let event) = notice { events.append(event) }
                    return true
                }
            }
        }
        var line = ProgressLine(console)
        let audit = Auditor(status).audit(events, kinds: kinds) { what, done, total in
            let of = total.map { " of \(Text.grouped($0))" } ?? ""
            line.update("audit: \(what): \(Text.grouped(done))\(of)")
        }
        line.clear()
        if console.isJSON {
            console.json(json(audit, status))
        } else {
            show(audit, status, console)
        }
        if !audit.findings.isEmpty { throw ExitCode(ExitStatus.findings.rawValue) }
        if !audit.unreachable.isEmpty { throw ExitCode(ExitStatus.someFailed.rawValue) }
    }

    // MARK: For people

    private func show(_ audit: Audit, _ status: VolumeStatus, _ console: Console) {
        let style = console.output
        for kind in Finding.Kind.allCases {
            let findings = audit.findings.filter { $0.kind == kind }
            if findings.isEmpty { continue }
            console.result(
                style.bold(kind.rawValue) + "  " + style.dim("\(kind.meaning)"))
            let shown = all ? findings.count : AuditCommand.shownOfAKind
            for finding in findings.prefix(shown) {
                console.result("  " + style.red(Text.printable(finding.description)))
            }
            if findings.count > shown {
                console.result("  and \(Text.grouped(findings.count - shown)) more: --all")
            }
            if !console.isQuiet {
                console.result("  → \(kind.advice(Text.shellQuoted(status.mountpoint)))")
            }
        }
        for place in audit.unreachable.prefix(AuditCommand.shownOfAKind) {
            console.note("not looked at: \(Text.printable(place))")
        }
        if audit.unreachable.count > AuditCommand.shownOfAKind {
            console.note(
                "\(Text.grouped(audit.unreachable.count - AuditCommand.shownOfAKind)) more not "
                    + "looked at")
        }
        if kinds.contains(.readableCopy), !audit.unread.isEmpty {
            console.note(
                "\(Text.count(audit.unread.count, "file")) can't be read now "
                    + "(\(StateText.name(audit.state))), so not compared with others: ward unlock "
                    + "first for that")
        }
        let found =
            audit.findings.isEmpty
            ? "nothing found" : Text.count(audit.findings.count, "finding")
        console.note("\(found) in \(Text.count(audit.files.count, "file"))")
    }

    // MARK: For programs

    private func json(_ audit: Audit, _ status: VolumeStatus) -> JSONValue {
        let counts = ProtectionClass.allCases.map { protectionClass in
            (
                protectionClass.letter,
                JSONValue.int(Int64(audit.files(of: protectionClass).count))
            )
        }
        return .object([
            ("mountpoint", .string(status.mountpoint)), ("state", .string(audit.state)),
            ("kinds", .array(kinds.map(\.rawValue).sorted().map { .string($0) })),
            ("files", .int(Int64(audit.files.count))), ("classes", .object(counts)),
            ("marked", .array(audit.marked.map { .string($0) })),
            ("uncompared", .int(Int64(audit.unread.count))),
            ("unreachable", .array(audit.unreachable.map { .string($0) })),
            ("clean", .bool(audit.findings.isEmpty)),
            ("findings", .array(audit.findings.map(\.json))),
        ])
    }
}
