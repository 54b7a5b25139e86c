import ArgumentParser
import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Internal command, started by the daemon. It holds no FUSE device, so it can't hang where a
/// killed daemon hangs.
struct WatchdogCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watchdog", abstract: "Abort a mount whose daemon died.", shouldDisplay: false)

    @Option(help: "Number under /sys/fs/fuse/connections.") var connection: UInt32
    @Option(help: "Where the volume is mounted.") var mountPoint: String
    @Option(help: "The volume's directory.") var volume: String
    @Option(help: "The daemon's process ID.") var daemon: Int32
    @Option(help: "Read end of a pipe that the daemon keeps open.") var fd: Int32
    @Option(help: "The connection's abort file, open for writing.") var abortFd: Int32?

    func run() throws {
        // Opened now, because the limits of this process may be lowered later.
        waitForTheEnd((try? Syscall.open("/proc/\(daemon)/status", O_RDONLY)) ?? -1)
        if let abortFd {
            // An open abort file belongs to its connection, mounted or not. The mount stays and
            // answers with errors, so no program writes plaintext into the bare mount point.
            _ = write(abortFd, "1", 1)
            return
        }
        // Without the control file system there is only the mount point, and connection numbers are
        // reused. So make sure that the mount is the dead daemon's, and not another volume's or a
        // successor's.
        var lock: VolumeHold?
        guard isOrphaned(&lock) else { return }
        let entry = MountTable.now.entries.last {
            $0.isWard && $0.deviceMinor == connection && $0.mountPoint == mountPoint
                && $0.source == volume
        }
        if entry != nil { cutOff() }
        // The lock is held until here, so that no successor mounts during the clean-up.
        lock = nil
    }

    /// Returns when the daemon is dying. It shows in one of three ways:
    ///
    /// - The pipe closes with the daemon's last thread. This fails where a thread hangs in the
    ///   daemon's own mount.
    /// - The thread that started this process dies, PR_SET_PDEATHSIG(2const).
    /// - That thread itself hangs, and SIGKILL stays pending: checked once a second.
    private func waitForTheEnd(_ status: Int32) {
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGUSR1)
        sigprocmask(SIG_BLOCK, &set, nil)
        let signals = signalfd(-1, &set, Int32(SFD_CLOEXEC))
        _ = ward_prctl(1 /* PR_SET_PDEATHSIG */, UInt(SIGUSR1))
        var waiting = [
            pollfd(fd: fd, events: Int16(POLLIN), revents: 0),
            pollfd(fd: signals, events: Int16(POLLIN), revents: 0),
        ]
        // Most of this process's memory is code that only its start needed.
        ProgramText.letGo()
        while waiting.allSatisfy({ $0.revents == 0 }), !isDying(status) {
            _ = waiting.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: 1000)
            }
        }
    }

    /// Whether the daemon was killed and can't end: its first thread is a zombie or has SIGKILL
    /// pending. The descriptor `status` has its proc_pid_status(5) open, or is negative.
    private func isDying(_ status: Int32) -> Bool {
        let text: String
        do throws(Errno) {
            if status >= 0 {
                guard lseek(status, 0, SEEK_SET) == 0 else { throw Errno(rawValue: errno) }
                text = String(
                    decoding: try FileReading.bytes(of: status, limit: 1 << 16), as: UTF8.self)
            } else {
                text = try FileReading.text(of: "/proc/\(daemon)/status", limit: 1 << 16)
            }
        } catch {
            // A temporary lack of descriptors or memory says nothing about the daemon.
            return error == .noSuchFileOrDirectory || error == .noSuchProcess
        }
        for line in text.split(separator: "\n") {
            if line.hasPrefix("State:") {
                let state = line.dropFirst(6).first { $0 != "\t" && $0 != " " }
                // A program of the same user or ^Z stopped the daemon. A lock must not wait for
                // that, so continue it.
                if state == "T", getppid() == daemon { kill(daemon, SIGCONT) }
                if state == "Z" || state == "X" { return true }
            } else if line.hasPrefix("SigPnd:") || line.hasPrefix("ShdPnd:") {
                let pending = UInt64(line.dropFirst(8), radix: 16) ?? 0
                if pending & (1 << UInt64(SIGKILL - 1)) != 0 { return true }
            }
        }
        return false
    }

    /// Whether no daemon serves the volume any more. Takes the volume's lock, which keeps a
    /// successor away. It stays nil where the dying daemon can't end and still holds it.
    private func isOrphaned(_ lock: inout VolumeHold?) -> Bool {
        for _ in 0..<100 {
            do throws(Errno) {
                lock = try VolumeHold(volume, makesFile: false)
                return true
            } catch {
                if error != .wouldBlock { return true }
            }
            // The daemon is gone and another process has the lock: a successor.
            if kill(daemon, 0) != 0 { return false }
            usleep(20_000)
        }
        // After two seconds the daemon still exists, so no other process has the lock.
        return isDying(-1)
    }

    /// Cuts the mount off. Root aborts the connection with umount2(2) MNT_FORCE while this process
    /// keeps the mount busy, so that the dead mount stays in place. Another user can only detach
    /// the mount, which uncovers the bare mount point. The kernel's request time-out then ends the
    /// waiting requests.
    private func cutOff() {
        // O_PATH sends no request to the dead daemon.
        let pin = try? OwnedDescriptor(opening: mountPoint, Int32(0o10000000) | O_DIRECTORY)
        if umount2(mountPoint, Int32(MNT_FORCE) | 8 /* UMOUNT_NOFOLLOW */) == 0 || errno == EBUSY {
            _ = consume pin
            return
        }
        _ = consume pin
        let words = ["fusermount3", "-u", "-z", "--", mountPoint]
        _ = try? ChildProcess.start(words[0], words, output: .null, error: .null).wait()
    }
}
