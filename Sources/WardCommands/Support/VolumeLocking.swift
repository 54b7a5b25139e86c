import CWardLinux
import Glibc
import Synchronization
import WardConsole
import WardControl
import WardSystem

/// Locks several volumes in parallel, each through its mount and with its own time limit, so that
/// one that hangs delays no other. The result comes from the mount after the lock has ended: a
/// socket can belong to another program.
struct VolumeLocking: Sendable {
    /// The limit for one lock: the daemon cuts off a mount that is not locked after five seconds.
    static let patience = Duration.seconds(12)
    /// After this time the socket is tried too: programs may keep all workers of the mount busy.
    private static let silence = Duration.seconds(3)

    let now: Bool
    let endHosts: Bool

    /// The result of one volume's lock.
    enum Outcome: Sendable {
        /// The state's name, and the status where the daemon still gave it.
        case done(state: String, VolumeStatus?)
        /// The mount could not be locked otherwise, so the daemon cut it off: nothing can be read.
        case cutOff
        /// `isSilent`: neither the mount nor the control socket answered in time.
        case failed(CommandFailure, isSilent: Bool = false)
    }

    static let what = "cannot lock"

    /// Returns outcomes in the order of `volumes` when each is locked or timed out.
    func run(_ volumes: [FoundVolume]) -> [Outcome] {
        let outcomes = Mutex<[Int: Outcome]>([:])
        var threads: [SystemThread] = []
        for (index, volume) in volumes.enumerated() {
            let body: @Sendable () -> Void = {
                let outcome = lock(volume)
                outcomes.withLock { $0[index] = outcome }
            }
            if let thread = try? SystemThread("ward-lock", body) {
                threads.append(thread)
            } else {
                body()
            }
        }
        for thread in threads { thread.join() }
        return outcomes.withLock { outcomes in volumes.indices.map { outcomes[$0]! } }
    }

    private func lock(_ volume: FoundVolume) -> Outcome {
        guard let mount = volume.mount else { return lockBySocket(volume) }
        let end = SystemClock.monotonic() + VolumeLocking.patience + .seconds(1)
        let child: AskingProcess
        do throws(Errno) {
            child = try AskingProcess(words(for: mount))
        } catch {
            return .failed(
                CommandFailure(
                    VolumeLocking.what, mount.mountPoint,
                    why: "no process can be started: \(Text.reason(error))", status: .system))
        }
        var answer = child.answer(until: SystemClock.monotonic() + VolumeLocking.silence)
        var bySocket: String?
        if answer == nil {
            // Only a record leads to the socket: the mount does not answer now.
            if let record = volume.record
                ?? RecordsCommand.ask()?.first(where: { $0.mount == mount }),
                let client = try? ControlClient(
                    socketPath: record.socket, timeout: .seconds(7))
            {
                bySocket = try? client.lock(now: now, endingHosts: endHosts)
            }
            answer = child.answer(until: end)
        }
        guard let answer else {
            return .failed(
                CommandFailure(
                    VolumeLocking.what, mount.mountPoint,
                    why: "the mount does not answer"
                        + (bySocket.map {
                            "; its control socket says \(StateText.name($0)), and nothing confirms it"
                        } ?? ""),
                    hint: "ward unmount --force \(Text.shellQuoted(mount.mountPoint))",
                    status: .temporary), isSilent: bySocket == nil)
        }
        if answer["errno"]?.intValue == Int(ESTALE), let hidden = lockHidden(mount) {
            return hidden
        }
        return outcome(answer, mount)
    }

    /// Locks a mount that another one hides, by the socket in its record. Nil where no record of
    /// this user's leads to it.
    private func lockHidden(_ mount: VolumeMount) -> Outcome? {
        guard let record = RecordsCommand.ask()?.first(where: { $0.isOf(mount) }),
            let client = try? ControlClient(
                socketPath: record.socket, timeout: VolumeLocking.patience),
            let state = try? client.lock(now: now, endingHosts: endHosts)
        else { return nil }
        return .done(state: state, try? client.status())
    }

    /// The command line of `LockMountCommand`.
    private func words(for mount: VolumeMount) -> [String] {
        [
            "lock-mount", "--mount-point=" + mount.mountPoint, "--device=\(mount.deviceMinor)",
            "--volume=" + mount.volume, "--owner=\(mount.owner)", "--group=\(mount.group)",
        ] + (now ? ["--now"] : []) + (endHosts ? ["--end-hosts"] : [])
    }

    private func outcome(_ answer: JSONValue, _ mount: VolumeMount) -> Outcome {
        if let state = answer["state"]?.stringValue {
            let status = answer["status"].flatMap(VolumeStatus.init(json:))
            // A previous lock may have left two seconds of grace.
            if now, !VolumeLocking.closes(state), state != "noPasscode" {
                return .failed(
                    CommandFailure(
                        VolumeLocking.what, mount.mountPoint,
                        why: "its daemon says \(StateText.name(state)) after the lock",
                        hint: "ward unmount --force \(Text.shellQuoted(mount.mountPoint))",
                        status: .temporary))
            }
            return .done(state: state, status)
        }
        let number = Int32(truncatingIfNeeded: answer["errno"]?.intValue ?? Int(EPROTO))
        if answer["wasAsked"]?.boolValue == true, number == ENOTCONN || number == ECONNABORTED {
            return .cutOff
        }
        let volume = FoundVolume(mount: mount, record: nil)
        if number == ETIMEDOUT {
            return .failed(
                CommandFailure(
                    VolumeLocking.what, mount.mountPoint,
                    why: "it is not locked after \(Text.duration(seconds: 12))",
                    hint: "ward unmount --force \(Text.shellQuoted(mount.mountPoint))",
                    status: .temporary))
        }
        return .failed(
            VolumeConnection.failure(
                VolumeLocking.what, mount.mountPoint, volume,
                mount.failure(Errno(rawValue: number))))
    }

    /// Locks through the socket. A mount that this namespace does not show can't be asked; only its
    /// record leads to the daemon.
    private func lockBySocket(_ volume: FoundVolume) -> Outcome {
        do throws(ControlError) {
            let client = try volume.connect(timeout: VolumeLocking.patience)
            let state = try client.lock(now: now, endingHosts: endHosts)
            return .done(state: state, try? client.status())
        } catch {
            return .failed(
                VolumeConnection.failure(VolumeLocking.what, volume.mountPoint, volume, error))
        }
    }

    /// Whether class A is closed in this state, except for a trusted host.
    static func closes(_ state: String) -> Bool {
        ["locked", "lockedWithHost", "beforeFirstUnlock"].contains(state)
    }
}
