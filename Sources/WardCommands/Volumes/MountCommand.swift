import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardDaemon
import WardFormat
import WardSystem

struct MountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mount", abstract: "Mount a volume.",
        discussion: """
            Returns when the mount answers; its daemon goes on in the background. The volume is \
            locked as after a boot, unless it has no passcode or --passcode-file is given.

            Examples:
              ward mount ~/.papers ~/papers
              ward mount ~/.papers ~/papers --grace 0
              ward mount ~/.papers ~/papers --passcode-file /run/keys/papers
              ward mount ~/.papers ~/papers --foreground      (for a service manager)

            The machine's login manager has it locked before sleep and shutdown, and, where you were \
            logged in, when your last session ends; ward status says what locks it.
            """)

    @Argument(help: "The volume's directory.", completion: .directory) var volume: String
    @Argument(help: "The directory to mount it on.", completion: .directory) var mountpoint: String
    @OptionGroup var settings: MountSettings
    @Flag(name: .shortAndLong, help: "Stay in the foreground until unmounted.")
    var foreground = false
    @Option(
        help:
            "Unlock at once with the passcode in this file; nothing stays mounted if it is wrong.",
        completion: .file())
    var passcodeFile: String?
    @Option(
        help: ArgumentHelp("Descriptor that is told when the mount answers.", visibility: .private))
    var readyFd: Int32?
    @OptionGroup var options: ReportOptions

    static let what = "cannot mount"

    func validate() throws {
        if let grace = settings.grace, !(0...86400).contains(grace) {
            throw ValidationError("--grace is a number of seconds, 0 to 86400")
        }
        if readyFd != nil && !foreground {
            throw ValidationError("--ready-fd goes with --foreground")
        }
    }

    func run() throws {
        let console = options.console
        let request = try MountRequest(volume: volume, mountPoint: mountpoint, settings: settings)
        if foreground {
            try ForegroundMount(request: request, passcodeFile: passcodeFile, readyFd: readyFd)
                .run(console)
            return
        }
        // Read before the daemon starts, so that an error here leaves nothing behind.
        let passcode = try passcodeFile.map { path throws(CommandFailure) in
            SecretBox(try SecretInput.read(file: path))
        }
        let mountPoint = try BackgroundMount(request: request).start()
        let connection = try VolumeConnection(MountCommand.what, path: mountPoint)
        if let passcode {
            do throws(CommandFailure) {
                try MountCommand.unlock(connection, passcode, mountPoint)
            } catch {
                try? connection.client.waitForEnd()
                throw error
            }
        }
        try MountCommand.report(try connection.status(), console)
    }

    /// Unlocks after the mount. After a wrong passcode nothing stays mounted.
    static func unlock(
        _ connection: VolumeConnection, _ passcode: SecretBox, _ mountPoint: String
    ) throws(CommandFailure) {
        guard try connection.status().passcodeSet else { return }
        do throws(ControlError) {
            _ = try connection.client.unlock(passcode: passcode.secret)
        } catch {
            var failure = CommandFailure("cannot unlock", mountPoint, error)
            try? connection.client.unmount(force: true)
            failure.why += "; nothing stays mounted"
            throw failure
        }
    }

    /// Prints one line: the place, and the command that unlocks it.
    static func report(_ status: VolumeStatus, _ console: Console) throws(CommandFailure) {
        if console.isJSON { return console.json(status.json) }
        let place = Text.shellQuoted(status.mountpoint)
        let state =
            StateText.isLocked(status.state)
            ? "locked: unlock with ward unlock \(place)" : StateText.name(status.state)
        console.confirm("\(Text.printable(status.mountpoint)): mounted, \(state)")
        if let advice = upgradeAdvice(status) { console.note(advice) }
    }

    /// Advice to begin an upgrade or to go on with it, with the command; nil where the volume has
    /// the newest format.
    static func upgradeAdvice(_ status: VolumeStatus) -> String? {
        let command = "ward upgrade \(Text.shellQuoted(status.volume)), once it is unmounted"
        if status.isUpgrading { return "the volume is not all of format 2 yet: \(command)" }
        guard status.format == Int(VolumeFormat.version1.rawValue) else { return nil }
        return "the volume has format 1. Format 2 detects files that are moved between directories "
            + "behind ward's back and classes that are weakened without the passcode: \(command)"
    }
}

/// The settings of a mount, passed on to the daemon unchanged.
struct MountSettings: ParsableArguments {
    @Option(
        help:
            "Seconds that protected files stay readable after a lock; no more than the volume's policy says (10)."
    )
    var grace: Double?
    @Flag(help: "Other users may enter (needs user_allow_other in /etc/fuse.conf, or root).")
    var allowOther = false
    @Flag(help: "Nothing is changed, nor is it on disk.") var readOnly = false
    @Flag(
        help:
            "Lock, with the grace period, whenever your screen is locked; an error where no login manager tells of it."
    )
    var lockWithScreen = false
    @Flag(help: "Do not lock when your last session ends.")
    var keepAtLogout = false
    @Flag(help: "Grace periods and CX's period pass by ward advance only; for volumes of tests.")
    var manualClock = false
    @Flag(help: "Others may change the backing directory meanwhile: cache less.")
    var sharedStorage = false
    @Option(
        help: ArgumentHelp(
            "What the kernel's requests come by: auto, device or io-uring (default: $WARD_TRANSPORT, else auto).",
            valueName: "way"))
    var transport: TransportChoice?
    @Flag(help: "Take a keybag older than this device remembers: a backup was restored on purpose.")
    var acceptOlder = false
    @Option(help: "Append the daemon's log to this file.", completion: .file()) var log: String?
    @Flag(
        help: ArgumentHelp(
            "Sync nothing: a power cut may take it all; for tests.", visibility: .private))
    var volatile = false
    @Flag(
        help: ArgumentHelp(
            "Tell the kernel of no page to drop, as if it kept them; for tests.",
            visibility: .private))
    var keepPages = false
    @Option(
        help: ArgumentHelp(
            "Rules by which the workers do not serve, for measurements: \(RulesLeftOut.known.joined(separator: ", ")).",
            valueName: "rules", visibility: .private))
    var withoutRules: RulesLeftOut?

    /// Each flag: its word, and where the settings and the daemon's options have it.
    static var flags:
        [(
            word: String, setting: KeyPath<MountSettings, Bool>,
            option: WritableKeyPath<MountOptions, Bool>
        )]
    {
        [
            ("--allow-other", \.allowOther, \.allowOther),
            ("--read-only", \.readOnly, \.readOnly),
            ("--lock-with-screen", \.lockWithScreen, \.lock.followsScreen),
            ("--keep-at-logout", \.keepAtLogout, \.lock.ignoresLogout),
            ("--manual-clock", \.manualClock, \.manualClock),
            ("--shared-storage", \.sharedStorage, \.sharedStorage),
            ("--accept-older", \.acceptOlder, \.acceptsOlderGeneration),
            ("--volatile", \.volatile, \.tests.isVolatile),
            ("--keep-pages", \.keepPages, \.tests.keepsPages),
        ]
    }
}

/// A mount to make, with absolute paths: the daemon's working directory is "/".
struct MountRequest {
    let options: MountOptions

    init(volume: String, mountPoint: String, settings: MountSettings) throws(CommandFailure) {
        // Before the paths, so that a wrong $WARD_TRANSPORT is reported first.
        let transport: TransportChoice
        if let asked = settings.transport {
            transport = asked
        } else {
            transport = try TransportChoice.fromEnvironment()
        }
        var options = MountOptions(
            volumePath: try MountRequest.realVolume(volume),
            mountPoint: try MountRequest.realMountPoint(mountPoint))
        for flag in MountSettings.flags {
            options[keyPath: flag.option] = settings[keyPath: flag.setting]
        }
        options.lock.graceSeconds = settings.grace
        options.transport = transport
        options.rulesLeftOut = settings.withoutRules
        do throws(Errno) {
            options.logPath = try settings.log.map { path throws(Errno) in
                try Path.realParent(path)
            }
        } catch {
            throw CommandFailure("cannot write the log", settings.log, errno: error)
        }
        self.options = options
    }

    private static func realVolume(_ volume: String) throws(CommandFailure) -> String {
        let what = MountCommand.what
        let real: String
        do throws(Errno) {
            real = try Path.real(volume)
        } catch {
            throw CommandFailure(
                what, volume, errno: error, hint: "ward init \(Text.shellQuoted(volume))",
                status: .noInput)
        }
        if let status = try? Syscall.stat(real), status.st_mode & S_IFMT != S_IFDIR {
            throw CommandFailure(
                what, real, why: "it is not a directory, so it is not a ward volume",
                hint: "ward init VOLUME", status: .notAVolume)
        }
        return real
    }

    private static func realMountPoint(_ mountPoint: String) throws(CommandFailure) -> String {
        do throws(Errno) {
            // The last component may be a dead mount, which the daemon replaces.
            let place = try Path.realParent(mountPoint)
            var status = FileStatus()
            if lstat(place, &status) == 0, status.st_mode & S_IFMT == S_IFLNK {
                return try Path.real(place)
            }
            return place
        } catch {
            throw CommandFailure(
                "cannot mount on", mountPoint, errno: error,
                hint: "mkdir -p \(Text.shellQuoted(mountPoint))", status: .noInput)
        }
    }

    /// The arguments that make `ward mount --foreground` do the same.
    var arguments: [String] {
        var words = ["ward", "mount", "--foreground"]
        for flag in MountSettings.flags where options[keyPath: flag.option] {
            words.append(flag.word)
        }
        if let grace = options.lock.graceSeconds { words += ["--grace", "\(grace)"] }
        // Always given, because $WARD_TRANSPORT may name another one.
        words += ["--transport", options.transport.rawValue]
        if let rules = options.rulesLeftOut { words += ["--without-rules", rules.words] }
        if let log = options.logPath { words += ["--log", log] }
        return words
    }
}
