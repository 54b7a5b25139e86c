import ArgumentParser
import Glibc
import WardBackup
import WardConsole
import WardControl
import WardSystem

struct BackupRunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run",
        abstract: "Run a program that makes a backup, with a picture that holds.",
        usage: "ward backup run <volume> [--for <tool>] [<options>] -- <command> ...",
        discussion: """
            First everything written so far is made durable. While the command runs, changes of the \
            passcode and of the policy wait (30 seconds at the most, each), and the epoch of the \
            volume's state record stays (for an hour at the most). Locks and unlocks are never \
            delayed. Afterwards it tells which files changed meanwhile: their copies may be of the \
            time before or after, or, where a file was being written in place, of both. Run it again \
            when that matters.

            The command finds in its environment:
              WARD_BACKUP_SOURCE    the volume's directory
              WARD_BACKUP_EXCLUDES  a file with what to leave out
              WARD_BACKUP_FILES     a file with what to take
            The two files are written as the program that --for names takes them (ward backup list \
            --help).

            The exit code is the command's. A volume that is not mounted can be named by its \
            directory: then there is nothing to hold.

            Examples:
              ward backup run ~/papers -- sh -c \\
                'restic -r /media/usb/repo backup --exclude-file "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE"'
              ward backup run ~/papers --for rsync -- sh -c \\
                'rsync -aHAX --delete --exclude-from "$WARD_BACKUP_EXCLUDES" "$WARD_BACKUP_SOURCE/" /media/usb/papers/'
            """)

    @Argument(
        help: "The mount point, a path in it, or the volume's directory.", completion: .directory)
    var volume: String
    @Option(name: .customLong("for"), help: "Which program reads the lists.")
    var tool: BackupTool = .restic
    @OptionGroup var options: ReportOptions
    @Argument(parsing: .postTerminator, help: "What to run, after --.") var command: [String] = []

    private static let what = "cannot make a backup of"

    func validate() throws {
        guard !command.isEmpty else {
            throw ValidationError(
                "a command is expected after --, as in ward backup run ~/papers -- restic backup …")
        }
    }

    func run() throws {
        let console = options.console
        let what = BackupRunCommand.what
        let source = try BackupSource(volume, what)
        let hold = try BackupRunCommand.hold(source)
        // Installed before the lists are made, so that a signal can't leave them behind.
        let signals = ForwardedSignals()
        let lists = try makeLists(source)
        var before = BackupSnapshot()
        let sawAll = try source.look(what, stamps: true, console) { directory in
            before.add(directory)
            lists.add(directory)
            if let signal = signals.pending {
                lists.remove()
                Glibc.exit(128 + signal)
            }
        }
        try finish(lists)
        if !sawAll || !lists.unwritable.isEmpty {
            throw CommandFailure(
                what, source.path, why: "not everything in it can be listed",
                hint: "ward backup list \(Text.shellQuoted(source.path)) >/dev/null shows what",
                status: .inputOutput)
        }
        before.settle(in: source.path)
        let code = try execute(source, lists, signals)
        lists.remove()
        var after = BackupSnapshot()
        // The command's exit code counts, regardless of the second look.
        let sawAllAgain =
            (try? source.look(what, stamps: true, console) { directory in
                after.add(directory)
                if signals.pending != nil { Glibc.exit(code) }
            }) ?? false
        var report = BackupReport(source: source, command: command, code: code)
        report.fileCount = before.fileCount
        report.directoryCount = before.directoryCount
        report.excludedCount = before.excludedCount
        report.isHeld = hold?.isConnected
        report.changes = after.changes(since: before, source.walk)
        report.isComplete = sawAllAgain
        report.keybagChanged = after.hasReplaced("ward.keybag", since: before)
        report.show(console)
        throw ExitCode(code)
    }

    /// Returns nil where no daemon serves the volume.
    private static func hold(_ source: BackupSource) throws(CommandFailure) -> ControlClient? {
        guard let mounted = source.mounted else { return nil }
        do throws(ControlError) {
            let client = try mounted.connect()
            try client.beginBackup()
            return client
        } catch {
            throw CommandFailure(what, source.path, error)
        }
    }

    private func makeLists(_ source: BackupSource) throws(CommandFailure) -> BackupLists {
        do throws(Errno) {
            return try BackupLists(tool, root: source.path)
        } catch {
            throw CommandFailure(
                "cannot write the lists of a backup", errno: error,
                hint: "TMPDIR names another place for them")
        }
    }

    private func finish(_ lists: BackupLists) throws(CommandFailure) {
        do throws(Errno) {
            try lists.finish()
        } catch {
            throw CommandFailure(
                "cannot write the lists of a backup", lists.directory, errno: error,
                hint: "TMPDIR names another place for them")
        }
    }

    private func execute(
        _ source: BackupSource, _ lists: BackupLists, _ signals: ForwardedSignals
    ) throws(CommandFailure) -> Int32 {
        do throws(Errno) {
            let child = try ChildProcess.start(
                command[0], command,
                environment: [
                    "WARD_BACKUP_SOURCE": source.path, "WARD_BACKUP_FILES": lists.filesPath,
                    "WARD_BACKUP_EXCLUDES": lists.excludesPath,
                ])
            return signals.forward(to: child)
        } catch {
            throw CommandFailure(
                "cannot run", command[0], errno: error, hint: "check the command after --",
                status: .noInput)
        }
    }
}
