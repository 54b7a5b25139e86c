import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSimulation
import WardSystem

/// A volume for one test, with state, sockets and daemon, in a temporary directory. The daemon is a
/// child of this process.
final class SimulatedVolume {
    /// scrypt N, the cheapest that is allowed: a test volume is not worth an attack.
    private static let passcodeCost = ScryptCost.n(1024)
    /// The longest wait for a daemon that was told to end, in milliseconds.
    private static let endTimeoutMilliseconds = 5000

    private let settings: SimulatorSettings
    private let directory: String
    private var daemon: ChildProcess?
    private var follower: EventFollower?
    private(set) var mount: SimulatedMount
    /// Events of daemons that have ended.
    private var pastEvents: [ControlEvent] = []

    private var runtime: RuntimeDirectory { RuntimeDirectory(path: directory + "/run/ward") }
    private var volumePath: String { directory + "/volume" }

    private init(_ settings: SimulatorSettings, directory: String) {
        self.settings = settings
        self.directory = directory
        mount = SimulatedMount(
            directory: directory, mountPoint: directory + "/files", socketPath: "",
            passcodeFile: settings.passcode == nil ? nil : directory + "/passcode", pid: 0)
    }

    /// Makes and starts the volume; after a failure nothing is left.
    static func make(_ settings: SimulatorSettings) throws(SimulatorError) -> SimulatedVolume {
        let device = SimulatedVolume(settings, directory: try makeDirectory())
        do throws(SimulatorError) {
            try device.prepare()
            try device.startDaemon()
            if settings.startsUnlocked, let passcode = settings.passcode {
                try device.unlock(passcode)
            }
        } catch {
            _ = device.remove()
            throw error
        }
        return device
    }

    private static func makeDirectory() throws(SimulatorError) -> String {
        let base = TemporaryDirectory.parent(forSockets: true)
        do throws(Errno) {
            let made = try TemporaryDirectory.make("ward-test", in: base)
            return (try? Path.real(made)) ?? made
        } catch {
            throw SimulatorError(
                "cannot make a directory in \(base)", why: "\(error)",
                hint: "TMPDIR=/var/tmp", exitCode: ExitStatus.cannotCreate.rawValue)
        }
    }

    // MARK: Life

    private func prepare() throws(SimulatorError) {
        for name in ["volume", "state", "run", "files"] { mkdir(directory + "/" + name, 0o700) }
        // For this process and the daemons that it starts.
        setenv("XDG_STATE_HOME", directory + "/state", 1)
        setenv("XDG_RUNTIME_DIR", directory + "/run", 1)
        let parameters = VolumeParameters(uuid: UUID4.random(), pageBytes: 4096)
        do {
            var typed: Passcode?
            if let passcode = settings.passcode, let file = mount.passcodeFile {
                try SimulatedVolume.write(passcode, to: file)
                typed = try Passcode(utf8: SecretBytes(testPasscode: passcode))
            }
            _ = try KeybagStore.create(
                volumePath: volumePath, stateRoot: StateDirectory.defaultRoot(),
                parameters: parameters, passcode: typed, cost: SimulatedVolume.passcodeCost
            ) { volumeKey, keyring throws(KeybagError) in
                try InitCommand.makeRoot(
                    volumePath, parameters, .ofNewVolumes, settings.defaultClass, volumeKey, keyring
                )
            }
        } catch {
            throw SimulatorError(
                "cannot make a volume in \(volumePath)", why: "\(error)",
                exitCode: ExitStatus.cannotCreate.rawValue)
        }
    }

    private func startDaemon() throws(SimulatorError) {
        let words = [
            "--manual-clock", "--volatile", "--grace", "\(settings.graceSeconds)", "--log",
            directory + "/log",
        ]
        guard (0...86400).contains(settings.graceSeconds),
            let mountSettings = try? MountSettings.parse(words)
        else {
            throw SimulatorError(
                "cannot simulate a device",
                why: "a grace period of \(settings.graceSeconds) s is impossible",
                exitCode: ExitStatus.usage.rawValue)
        }
        do throws(BackgroundMount.Failure) {
            let request: MountRequest
            do throws(CommandFailure) {
                request = try MountRequest(
                    volume: volumePath, mountPoint: mount.mountPoint, settings: mountSettings)
            } catch {
                throw .command(error)
            }
            let started = try BackgroundMount(request: request).launch()
            daemon = started.daemon
        } catch {
            switch error {
            case .command(let failure): throw SimulatorError(failure)
            case .daemon(let status, let text): throw SimulatorError(status: status, text: text)
            }
        }
        guard let mounted = runtime.mounted().first else {
            throw SimulatorError("cannot reach the simulated device", why: "its record is missing")
        }
        mount.socketPath = mounted.socket
        mount.pid = mounted.pid
        follower = EventFollower.start(socketPath: mounted.socket)
    }

    private func unlock(_ passcode: String) throws(SimulatorError) {
        do {
            _ = try ControlClient(socketPath: mount.socketPath).unlock(
                passcode: SecretBytes(testPasscode: passcode))
        } catch {
            throw SimulatorError("cannot unlock the simulated device", why: "\(error)")
        }
    }

    func kill() throws(SimulatorError) {
        guard let daemon else {
            throw SimulatorError("cannot kill the daemon", why: "it does not run")
        }
        rememberEvents()
        Glibc.kill(daemon.pid, SIGKILL)
        _ = daemon.wait()
        self.daemon = nil
    }

    /// A shutdown and a boot while the daemon runs; else a boot after a crash.
    func restart() throws(SimulatorError) -> SimulatedMount {
        if daemon != nil { endDaemon() }
        try startDaemon()
        return mount
    }

    /// Ends the daemon and its mount and removes all files. Returns an error where something is
    /// left.
    func remove() -> SimulatorError? {
        if daemon != nil { endDaemon() }
        if isMounted { detach() }
        if !isMounted, DirectoryTree.remove(directory) { return nil }
        return SimulatorError(
            "cannot remove \(directory)", why: isMounted ? "it is still in use" : "files are left",
            exitCode: ExitStatus.temporary.rawValue)
    }

    private func endDaemon() {
        guard let daemon else { return }
        rememberEvents()
        let client = try? ControlClient(socketPath: mount.socketPath, timeout: .seconds(5))
        if (try? client?.unmount(force: true)) == nil { Glibc.kill(daemon.pid, SIGTERM) }
        if !ends(daemon) {
            Glibc.kill(daemon.pid, SIGKILL)
            _ = daemon.wait()
        }
        self.daemon = nil
    }

    private func ends(_ daemon: ChildProcess) -> Bool {
        for _ in 0..<SimulatedVolume.endTimeoutMilliseconds {
            var status: Int32 = 0
            let reaped = waitpid(daemon.pid, &status, WNOHANG)
            if reaped == daemon.pid || reaped < 0 && errno == ECHILD { return true }
            usleep(1000)
        }
        return false
    }

    private var isMounted: Bool {
        MountTable.now.entries.contains { PathBytes.isInside($0.mountPoint, directory) }
    }

    private func detach() {
        if umount2(mount.mountPoint, 2 /* MNT_DETACH */) == 0 { return }
        let words = ["fusermount3", "-u", "-z", "--", mount.mountPoint]
        _ = try? ChildProcess.start(words[0], words, output: .null, error: .null).wait()
    }

    // MARK: Seeing

    /// Saves the events before a daemon ends: the next daemon does not know them.
    private func rememberEvents() {
        pastEvents = events()
        follower = nil
    }

    /// All events. A daemon that died can't be asked, but its reported events are kept.
    func events() -> [ControlEvent] {
        guard let follower else { return pastEvents }
        return pastEvents + follower.events(with: (try? latestEvents()) ?? [])
    }

    private func latestEvents() throws(SimulatorError) -> [ControlEvent] {
        var events: [ControlEvent] = []
        try reach { client throws(ControlError) in
            try client.monitor(last: .max, follow: false) { notice in
                if case .event(let event) = notice { events.append(event) }
                return true
            }
        }
        return events
    }

    func audit() throws(SimulatorError) -> Audit {
        guard daemon != nil else {
            throw SimulatorError("cannot audit the volume", why: "its daemon was killed")
        }
        var status: VolumeStatus?
        try reach { client throws(ControlError) in status = try client.status() }
        guard let status else { return Audit(state: "") }
        return Auditor(status).audit(events())
    }

    private func reach(_ body: (ControlClient) throws(ControlError) -> Void) throws(SimulatorError)
    {
        do throws(ControlError) {
            try body(ControlClient(socketPath: mount.socketPath))
        } catch {
            throw SimulatorError(
                "cannot reach the simulated device", why: "\(error)",
                exitCode: ExitStatus.unavailable.rawValue)
        }
    }

    // MARK: Passcodes

    private static func write(_ passcode: String, to path: String) throws(Errno) {
        let file = try OwnedDescriptor(
            opening: path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
        let bytes = Array(passcode.utf8)
        try Syscall.writeAll(file.rawValue, bytes, bytes.count)
    }
}

extension SimulatorError {
    init(_ failure: CommandFailure) {
        self.init(
            failure.what + (failure.subject.map { " " + Text.printable($0) } ?? ""),
            why: failure.why, hint: failure.hint, exitCode: failure.status.rawValue)
    }

    /// Parses the two lines that a daemon printed.
    init(status: Int32, text: String) {
        let lines = text.split(separator: "\n")
        let error = lines.first.map { String($0) } ?? "it ended without a word"
        let prefix = "ward: error: "
        self.init(
            "cannot simulate a device",
            why: error.hasPrefix(prefix) ? String(error.dropFirst(prefix.count)) : error,
            hint: lines.dropFirst().first.map {
                $0.hasPrefix("ward: hint: ") ? String($0.dropFirst(12)) : String($0)
            }, exitCode: status)
    }
}
