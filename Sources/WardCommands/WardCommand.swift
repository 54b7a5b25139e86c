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
                    AdoptCommand.self, CheckCommand.self, UpgradeCommand.self,
                    EraseCommand.self,
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
                    SessionWatchCommand.self, WriteBackCommand.self, KernelProbeCommand.self,
                    LockMountCommand.self, RecordsCommand.self, SimulateCommand.self,
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
            WriteBackCommand.configuration, KernelProbeCommand.configuration,
        ]
        if CommandLine.arguments.count > 1,
            helpers.contains(where: { $0.commandName == CommandLine.arguments[1] })
        {
            ProcessHardening.applyToHelper()
        }
    }
}
