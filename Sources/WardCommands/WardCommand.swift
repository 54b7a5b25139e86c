import ArgumentParser
import CWardLinux
import Glibc
import WardControl
import WardDaemon
import WardSystem

/// The root of the command line.
public struct WardCommand: ParsableCommand {
    public static let configuration = CommandConfiguration(
        commandName: "ward",
        abstract:
            "Protect files by class and lock state, as iOS does, in a directory of ciphertext.",
        discussion: """
            A volume is a directory of ciphertext; mounting it shows the plaintext to any program. \
            Every file has a protection class, the volume a lock state, and together they decide \
            what can be read now.

            Begin with:
              ward demo
              ward init ~/.papers
              ward mount ~/.papers ~/papers
              ward unlock ~/papers

            Exit codes: 0 done, 1 some of several paths failed, 10 not a volume, 11 locked, 12 wrong \
            passcode, 13 try later, 14 damaged or erased, 15 an audit found something or a check repaired it, \
            16 nothing was locked for want of a passcode, else as in sysexits.h: 64 wrong usage, 65 unusable \
            input, 66 no such file, 69 nothing mounted, 73 can't be created, 75 busy, 77 not \
            permitted, 78 no device key.
            """,
        version: WardVersion.current,
        groupedSubcommands: [
            CommandGroup(
                name: "Volumes",
                subcommands: [
                    InitCommand.self, MountCommand.self, UnmountCommand.self,
                    PasscodeCommand.self, PolicyCommand.self, RecoveryCommand.self,
                    AdoptCommand.self, CheckCommand.self, EraseCommand.self,
                ]),
            CommandGroup(
                name: "Lock state",
                subcommands: [
                    LockCommand.self, UnlockCommand.self, RebootCommand.self, TrustCommand.self,
                ]),
            CommandGroup(
                name: "Seeing",
                subcommands: [
                    StatusCommand.self, WatchCommand.self, EventsCommand.self, HoldersCommand.self,
                    AuditCommand.self,
                ]),
            CommandGroup(
                name: "Files",
                subcommands: [
                    ClassCommand.self, ContainerCommand.self, ListCommand.self, SyncCommand.self,
                ]),
            CommandGroup(
                name: "Backup",
                subcommands: [BackupCommand.self, ExportCommand.self, ImportCommand.self]),
            CommandGroup(
                name: "More",
                subcommands: [
                    DemoCommand.self, TestCommand.self, LintCommand.self, VersionCommand.self,
                    AdvanceCommand.self, FillCommand.self, WatchdogCommand.self,
                    SessionWatchCommand.self, WriteBackCommand.self, LockMountCommand.self,
                    RecordsCommand.self, SimulateCommand.self,
                    TestChildCommand.self, SandboxChildCommand.self,
                ]),
        ])

    public init() {}

    /// Call this first. Names the process ward, because `/proc/self/exe` makes it `exe`, and
    /// protects helpers of a daemon from other processes.
    public static func prepareProcess() {
        "ward".withCString { _ = ward_prctl(PR_SET_NAME, UInt(bitPattern: $0)) }
        let helpers = [
            WatchdogCommand.configuration, SessionWatchCommand.configuration,
            WriteBackCommand.configuration,
        ]
        if CommandLine.arguments.count > 1,
            helpers.contains(where: { $0.commandName == CommandLine.arguments[1] })
        {
            ProcessHardening.applyToHelper()
        }
    }

    /// Runs the command line and ends the process with its exit code.
    public static func runToExit() -> Never {
        occupyStandardStreams()
        do {
            var command = try parseAsRoot()
            try command.run()
            Glibc.exit(ExitStatus.success.rawValue)
        } catch let failure as CommandFailure {
            Console().failure(failure)
            Glibc.exit(failure.status.rawValue)
        } catch let error as Errno {
            let failure = CommandFailure("cannot go on", errno: error)
            Console().failure(failure)
            Glibc.exit(failure.status.rawValue)
        } catch let code as ExitCode {
            Glibc.exit(code.rawValue)
        } catch {
            Glibc.exit(reportParsing(error))
        }
    }

    /// Opens a closed standard stream in the wrong direction, so that its use still fails.
    /// Otherwise the next opened file, perhaps /dev/fuse or a keybag, would get its number and the
    /// output.
    private static func occupyStandardStreams() {
        for (descriptor, flags) in [(Int32(0), O_WRONLY), (1, O_RDONLY), (2, O_RDONLY)]
        where fcntl(descriptor, F_GETFD) == -1 {
            _ = Glibc.open("/dev/null", flags)
        }
    }

    /// Prints help, versions and completion scripts to stdout, and mistakes in the command line as
    /// two lines.
    private static func reportParsing(_ error: any Error) -> Int32 {
        let full = fullMessage(for: error)
        guard exitCode(for: error) != .success else {
            Console.write(full + "\n", to: 1)
            return ExitStatus.success.rawValue
        }
        // For example "  See 'ward mount --help' for more information."
        var help = "ward --help"
        if let start = full.range(of: "See '"), let end = full.range(of: "' for more", after: start)
        {
            help = String(full[start.upperBound..<end.lowerBound])
        }
        let failure = CommandFailure(
            "cannot read the command line", why: Text.lowerFirst(message(for: error)), hint: help,
            status: .usage)
        Console().failure(failure)
        return failure.status.rawValue
    }
}

extension String {
    fileprivate func range(of text: String, after: Range<Index>? = nil) -> Range<Index>? {
        var position = after?.upperBound ?? startIndex
        while position < endIndex {
            if self[position...].hasPrefix(text) {
                return position..<index(position, offsetBy: text.count)
            }
            position = index(after: position)
        }
        return nil
    }
}
