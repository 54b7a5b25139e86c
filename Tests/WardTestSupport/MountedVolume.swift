import Foundation

/// A volume in a directory of its own, served by the built program in a child process, with a clock
/// that only the test moves. The end of the last reference unmounts it, ends its daemon and deletes
/// its files.
package final class MountedVolume {
    package static let passcode = "correct horse"

    package let user: User
    /// Contains everything of this volume: the backing directory, the mount point, state, sockets.
    package let directory: String
    /// The backing directory.
    package let volume: String
    package let mountPoint: String
    package var passcodeFile: String { directory + "/passcode" }
    package var stateDirectory: String { directory + "/state" }
    package var runtimeDirectory: String { directory + "/run" }
    /// Environment variables beside the usual ones.
    package var variables: [String: String] = [:]
    package private(set) var isMounted = false
    private let graceSeconds: Int
    /// True: only the test moves the daemon's clock. False: the daemon uses the system's clock, as
    /// outside of tests.
    private let hasManualClock: Bool
    private var mountArguments: [String]
    private let hasPasscode: Bool

    /// Makes a volume, mounts and unlocks it: state S2, or S0 without a passcode.
    ///
    /// `backing`: an existing directory to put the volume into, else one beside the mount point.
    package convenience init(
        as user: User, passcode: String? = MountedVolume.passcode, grace: Int = 10,
        manualClock: Bool = true, initArguments: [String] = [], mountArguments: [String] = [],
        backing: String? = nil
    ) throws {
        try self.init(
            directoryOnlyAs: user, passcode: passcode, grace: grace, manualClock: manualClock,
            mountArguments: mountArguments, backing: backing)
        guard !TestEnvironment.shared.isPlain else { return }
        try initialize(initArguments)
        try mount()
        if passcode != nil { try unlock() }
    }

    /// Makes only the directories and the passcode file, no volume.
    package init(
        directoryOnlyAs user: User, passcode: String? = MountedVolume.passcode, grace: Int = 10,
        manualClock: Bool = true, mountArguments: [String] = [], backing: String? = nil
    ) throws {
        try TestEnvironment.shared.requireMounts()
        self.user = user
        directory = try TestEnvironment.shared.makeDirectory("volume")
        volume = backing ?? directory + "/volume"
        mountPoint = directory + "/mnt"
        graceSeconds = grace
        hasManualClock = manualClock
        hasPasscode = passcode != nil
        self.mountArguments = mountArguments
        for name in ["mnt", "state", "run", "home"] {
            Glibc.mkdir(directory + "/" + name, 0o700)
        }
        if backing == nil { Glibc.mkdir(volume, 0o700) }
        try writePasscode(passcode ?? "", to: passcodeFile)
        for path in [directory, volume, mountPoint, stateDirectory, runtimeDirectory, passcodeFile]
            + [directory + "/home"]
        {
            chown(path, user.userID, user.groupID)
        }
    }

    deinit {
        detach()
        let others = TestEnvironment.shared.processes().filter { $0.contains(directory) }
        let killed =
            [daemonProcess()].compactMap { $0 }
            + others.compactMap { line in pid_t(line.prefix { $0.isNumber }) }
        for process in killed { Glibc.kill(process, SIGKILL) }
        // A call of the backing store that is under way ends first: a file that it makes must not
        // come after the removal.
        _ = comesTrue(within: 10) { !killed.contains(where: Self.isRunning) }
        // A test's own backing store may be full or read-only; the test detaches what it mounted
        // there.
        let removed = try? Child.run(
            ["rm", "-rf", directory], environment: TestEnvironment.shared.variables)
        if removed?.succeeded != true {
            let why = removed.map { $0.timedOut ? "it takes too long" : $0.errors } ?? "no rm"
            FileHandle.standardError.write(Data("can't remove \(directory): \(why)\n".utf8))
        }
    }

    // MARK: Programs

    /// The environment of programs that work with this volume.
    package var environment: [String: String] {
        TestEnvironment.shared.variables.merging([
            "XDG_STATE_HOME": stateDirectory, "XDG_RUNTIME_DIR": runtimeDirectory,
            "HOME": directory + "/home",
        ]) { $1 }.merging(variables) { $1 }
    }

    /// Runs `ward` with these arguments as this volume's user.
    @discardableResult
    package func ward(_ arguments: String..., input: String = "", seconds: Double = 60) throws
        -> Finished
    {
        try Child.run(
            user.prefix + [TestEnvironment.shared.ward] + arguments, environment: environment,
            input: input, seconds: seconds)
    }

    /// Runs `ward`; throws its error message if it fails.
    private func must(_ arguments: [String], seconds: Double = 60) throws {
        let done = try Child.run(
            user.prefix + [TestEnvironment.shared.ward] + arguments, environment: environment,
            seconds: seconds)
        guard done.succeeded else {
            throw SupportError("`ward \(arguments.joined(separator: " "))`: \(done.everything)")
        }
    }

    // MARK: Life

    /// Makes the volume, with a cheap passcode.
    package func initialize(_ arguments: [String] = []) throws {
        let secret = hasPasscode ? ["--passcode-file", passcodeFile] : ["--no-passcode"]
        try must(["init", volume, "--passcode-cost", "1024"] + secret + arguments)
    }

    /// Mounts; the state is S1 afterwards, or S0 without a passcode.
    package func mount(extra: [String] = []) throws {
        guard !TestEnvironment.shared.isPlain else { return }
        try must(
            ["mount", volume, mountPoint, "--grace", String(graceSeconds)]
                + (hasManualClock ? ["--manual-clock"] : []) + mountArguments + extra)
        isMounted = true
    }

    package func unmount() throws {
        guard !TestEnvironment.shared.isPlain else { return }
        try must(["unmount", mountPoint])
        isMounted = false
    }

    /// Unmounts, mounts and unlocks again, so that everything is read from the backing directory.
    package func remount() throws {
        guard !TestEnvironment.shared.isPlain else { return }
        try unmount()
        try mount()
        if hasPasscode { try unlock() }
    }

    /// Begins a lock with its grace period; `lockNow` has none.
    package func lock() throws { try must(["lock", mountPoint]) }
    package func lockNow() throws { try must(["lock", mountPoint, "--now"]) }
    package func unlock() throws {
        guard !TestEnvironment.shared.isPlain else { return }
        try must(["unlock", mountPoint, "--passcode-file", passcodeFile])
    }
    package func reboot() throws { try must(["reboot", mountPoint]) }
    /// Moves the daemon's clock.
    package func advance(seconds: Int) throws { try must(["advance", mountPoint, "\(seconds)s"]) }

    /// Takes the volume from any state to `state`.
    package func enter(_ state: LockState) throws {
        guard state != .noPasscode else {
            precondition(!hasPasscode, "a volume with a passcode is never in S0")
            return
        }
        try unlock()
        switch state {
        case .noPasscode, .unlocked: break
        case .beforeFirstUnlock: try reboot()
        case .locking: try lock()
        case .locked:
            try lock()
            try advance(seconds: graceSeconds)
        case .lockedInactive:
            try lock()
            // CX expires after a day without an unlock, by default.
            try advance(seconds: 25 * 3600)
        }
    }

    /// Kills the daemon as a crash would. Its mount, socket and record stay for the next mount.
    package func kill() throws {
        guard let daemon = daemonProcess() else { throw SupportError("no daemon to kill") }
        Glibc.kill(daemon, SIGKILL)
        try Self.waitForEnd(of: daemon)
        isMounted = false
    }

    /// Detaches the mount, even while programs use it.
    package func detach() {
        for mount in TestEnvironment.shared.mounts() where mount.hasPrefix(directory + "/") {
            if geteuid() == 0 {
                umount2(mount, Int32(MNT_DETACH))
            } else {
                _ = try? Child.run(["fusermount3", "-uz", mount], environment: environment)
            }
        }
        isMounted = false
    }

    // MARK: What the daemon says of itself

    /// The daemon's process number, from the record beside its socket.
    package func daemonProcess() -> pid_t? { (record()?["pid"] as? Int).map(pid_t.init) }

    /// The control socket's path.
    package func socketPath() -> String? { record()?["socket"] as? String }

    /// The daemon's record in the runtime directory. A daemon that died may have left another one:
    /// the record of a running daemon goes first.
    package func record() -> [String: Any]? {
        let runtime = runtimeDirectory + "/ward"
        let names = (try? FileManager.default.contentsOfDirectory(atPath: runtime)) ?? []
        let records = names.filter { $0.hasSuffix(".json") }.compactMap { name in
            FileManager.default.contents(atPath: runtime + "/" + name).flatMap {
                try? JSONSerialization.jsonObject(with: $0) as? [String: Any]
            }
        }
        return records.first { ($0["pid"] as? Int).map { Self.isRunning(pid_t($0)) } ?? false }
            ?? records.first
    }

    /// The device's directory for this volume: device key, effaceable key, remembered generation.
    package func deviceDirectory() throws -> String {
        let parent = stateDirectory + "/ward"
        let names = try FileManager.default.contentsOfDirectory(atPath: parent)
        guard names.count == 1 else { throw SupportError("\(parent) holds \(names)") }
        return parent + "/" + names[0]
    }

    package func writePasscode(_ passcode: String, to path: String) throws {
        try passcode.write(toFile: path, atomically: false, encoding: .utf8)
        chmod(path, 0o600)
        chown(path, user.userID, user.groupID)
    }

    /// Whether a process still runs. A zombie does not, unless one of its threads waits for the
    /// disk: then it still holds its files and their locks.
    package static func isRunning(_ process: pid_t) -> Bool {
        let stat = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .utf8)
        guard let fields = stat?.split(separator: ")").last?.split(separator: " ") else {
            return false
        }
        // proc_pid_stat(5): the state is the third field, the number of threads the twentieth.
        return fields.count > 17 && (fields[0] != "Z" || fields[17] != "1")
    }

    /// Throws if the process still runs after a minute.
    package static func waitForEnd(of process: pid_t) throws {
        guard comesTrue(within: 60, { !isRunning(process) }) else {
            throw SupportError("process \(process) does not end")
        }
    }
}
