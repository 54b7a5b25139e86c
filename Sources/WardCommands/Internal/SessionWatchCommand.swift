import ArgumentParser
import CWardLinux
import Glibc
import WardControl
import WardSystem

/// Internal command, started by the daemon. Listens to the login manager and calls the daemon over
/// an inherited connection.
struct SessionWatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "session-watch", abstract: "Lock before sleep and shutdown.",
        shouldDisplay: false)

    /// When the end of the last session locks: `new` if the user has a session now, `known` if
    /// there was one before.
    enum Logout: String, ExpressibleByArgument {
        case new, known
    }

    @Option(help: "Where the volume is mounted.") var mountPoint: String
    @Option(help: "Read end of a pipe that the daemon keeps open.") var fd: Int32
    @Option(help: "One end of a socketpair(2); the daemon has the other.") var socketFd: Int32
    @Flag(help: "Lock with the screen, too.") var screen = false
    @Option(help: "Lock when the user's last session ends.") var logout: Logout?

    func run() throws {
        let watch = SessionWatch(
            mountPoint: mountPoint, lifeline: fd, screen: screen, logout: logout,
            daemon: try DaemonConnection(socketFd, mountPoint))
        watch.run()
    }
}

/// The connection to the daemon.
private struct DaemonConnection {
    /// The longest wait for one answer; after it, other ways are tried.
    private static let patience = Duration.seconds(2)
    /// The daemon's own deadline is 5 s, and its final check may take another second.
    private static let deadline = Duration.seconds(7)

    private let client: ControlClient
    private let pid = getppid()

    init(_ descriptor: Int32, _ name: String) throws(ControlError) {
        client = try ControlClient(
            adopting: OwnedDescriptor(adopting: descriptor), name: name,
            timeout: DaemonConnection.patience)
    }

    /// Reports the triggers. Without an answer the status stays a little older.
    func report(_ triggers: [LockTrigger]) { try? client.report(triggers) }

    /// Begins a lock with the grace period, or waits until class A is gone.
    func lock(now: Bool, endingHosts: Bool, reason: String) {
        if now {
            lockNow(endingHosts: endingHosts, reason)
        } else {
            _ = try? client.lock(now: false, reason: reason)
        }
    }

    /// Returns when the daemon has confirmed that class A is gone.
    ///
    /// Without an answer in time, SIGCONT wakes the daemon and SIGUSR1 requests the lock: no thread
    /// of the control socket has to answer that. Without a confirmation by the deadline, the daemon
    /// is killed. Its keys go with it, and the watchdog cuts the mount off.
    private func lockNow(endingHosts: Bool, _ reason: String) {
        let end = SystemClock.monotonic() + DaemonConnection.deadline
        var state = try? client.lock(now: true, reason: reason, endingHosts: endingHosts)
        while !DaemonConnection.isLocked(state, endingHosts) {
            guard getppid() == pid else { return }
            kill(pid, SIGCONT)
            kill(pid, SIGUSR1)
            if SystemClock.monotonic() > end { break }
            do throws(ControlError) {
                state =
                    state == nil
                    ? try client.lateLock()
                    : try client.lock(now: true, reason: reason, endingHosts: endingHosts)
            } catch {
                // A broken connection fails at once, so wait here.
                if error.code != .timedOut { usleep(100_000) }
            }
        }
        if DaemonConnection.isLocked(state, endingHosts) { return }
        // This process has no log of its own: use the system's, where there is one.
        let text = "\(reason): the lock was not confirmed in time; the daemon is killed"
        text.withCString { ward_syslog(3 /* LOG_ERR */, $0) }
        if getppid() == pid { kill(pid, SIGKILL) }
    }

    private static func isLocked(_ state: String?, _ endingHosts: Bool) -> Bool {
        switch state {
        // Without a passcode nothing is ever withheld.
        case "locked", "beforeFirstUnlock", "noPasscode": true
        case "lockedWithHost": !endingHosts
        default: false
        }
    }
}

/// A delay lock of the login manager: while it is held, sleep or shutdown waits for this process,
/// for some seconds at most.
private struct DelayLock: ~Copyable {
    let occasion: SystemBus.Occasion
    private let why: String
    private var descriptor: OwnedDescriptor?
    private(set) var refusal: Errno?

    init(_ occasion: SystemBus.Occasion, _ why: String) {
        self.occasion = occasion
        self.why = why
        descriptor = nil
        refusal = nil
    }

    mutating func take(_ bus: borrowing SystemBus) {
        do throws(Errno) {
            descriptor = try bus.delayLock(occasion, why)
            refusal = nil
        } catch {
            refusal = error
        }
    }

    mutating func release() { descriptor = nil }
}

/// Handles the signals of the login manager until the daemon ends.
private final class SessionWatch {
    /// The wait before the next try after the bus was lost or missing.
    static let retryMilliseconds: Int32 = 5000
    /// The interval of checks whether the user is still logged in. A session whose processes go on
    /// (the daemon is one) ends without a signal: it stays *closing* while they live.
    static let logoutMilliseconds: Int32 = 5000

    private let mountPoint: String
    private let lifeline: Int32
    private let screen: Bool
    private let daemon: DaemonConnection
    private let wantsLogout: Bool
    /// Whether the end of the last session locks: true if the user had one at mount time. Nil
    /// before the first check.
    private var watchesLogout: Bool?
    /// The result of the last check; a watch that replaces another starts with the other's result.
    private var wasLoggedIn: Bool
    /// The reason why the login state can't be seen.
    private var logoutFailure: Errno?

    init(
        mountPoint: String, lifeline: Int32, screen: Bool, logout: SessionWatchCommand.Logout?,
        daemon: DaemonConnection
    ) {
        self.mountPoint = mountPoint
        self.lifeline = lifeline
        self.screen = screen
        self.daemon = daemon
        wantsLogout = logout != nil
        watchesLogout = logout == .known ? true : nil
        wasLoggedIn = logout == .known
    }

    func run() {
        while true {
            do throws(Errno) {
                if try watch() { return }
            } catch {
                daemon.report(unarmed(SessionWatch.words(for: error)))
            }
            if daemonEnds(within: SessionWatch.retryMilliseconds) { return }
        }
    }

    private static func words(for error: Errno) -> String {
        switch error.rawValue {
        case ELIBACC: "libsystemd.so.0 is not there"
        case ENXIO: "no login manager"
        default: "no system bus: \(error)"
        }
    }

    /// Watches until the daemon ends, then returns true. Throws where there is no bus or no login
    /// manager, or the bus is lost.
    private func watch() throws(Errno) -> Bool {
        let bus = try SystemBus(sessions: screen)
        let why = "Lock the protected files in \(mountPoint)"
        var sleep = DelayLock(.sleep, why)
        var shutdown = DelayLock(.shutdown, why)
        sleep.take(bus)
        shutdown.take(bus)
        lookForLogout(bus)
        report(sleep.refusal, shutdown.refusal)
        // Most of this process's memory is code that only its start needed.
        ProgramText.letGo()
        while true {
            while let signal = try bus.next() {
                switch signal {
                case .sleep(begins: true):
                    daemon.lock(now: true, endingHosts: true, reason: "the machine goes to sleep")
                    sleep.release()
                case .shutdown(begins: true):
                    daemon.lock(now: true, endingHosts: true, reason: "the machine shuts down")
                    shutdown.release()
                case .sleep(begins: false):
                    sleep.take(bus)
                    report(sleep.refusal, shutdown.refusal)
                case .shutdown(begins: false):
                    shutdown.take(bus)
                    report(sleep.refusal, shutdown.refusal)
                case .screenLocked(let session):
                    if concernsUs(session, bus) {
                        daemon.lock(
                            now: false, endingHosts: false, reason: "the screen was locked")
                    }
                case .sessionsChanged: lookForLogout(bus)
                case .manager(isThere: true):
                    sleep.take(bus)
                    shutdown.take(bus)
                    lookForLogout(bus)
                    report(sleep.refusal, shutdown.refusal)
                case .manager(isThere: false):
                    daemon.report(unarmed(SessionWatch.words(for: .noSuchAddressOrDevice)))
                case .other: break
                }
            }
            var waiting = [
                bus.pollRequest, pollfd(fd: lifeline, events: Int16(POLLIN), revents: 0),
            ]
            var timeout = bus.timeoutMilliseconds
            let looks = watchesLogout == true && wasLoggedIn
            if looks, timeout < 0 { timeout = SessionWatch.logoutMilliseconds }
            let ready = waiting.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: timeout)
            }
            if waiting[1].revents != 0 { return true }
            if ready == 0, looks { lookForLogout(bus) }
        }
    }

    /// Locks where the user's last session has ended since the last check.
    private func lookForLogout(_ bus: borrowing SystemBus) {
        guard wantsLogout else { return }
        let isLoggedIn: Bool
        do throws(Errno) {
            isLoggedIn = try bus.isLoggedIn(geteuid())
            logoutFailure = nil
        } catch {
            logoutFailure = error
            return
        }
        if watchesLogout == nil { watchesLogout = isLoggedIn }
        if watchesLogout == true, wasLoggedIn, !isLoggedIn {
            daemon.lock(now: true, endingHosts: false, reason: "its user has logged out")
        }
        wasLoggedIn = isLoggedIn
    }

    /// Whether the session belongs to the daemon's user. For root every session counts: root's
    /// volumes are the machine's.
    private func concernsUs(_ session: String, _ bus: borrowing SystemBus) -> Bool {
        guard let uid = try? bus.user(ofSession: session) else { return false }
        return geteuid() == 0 || uid == geteuid()
    }

    // MARK: Saying

    private func unarmed(_ why: String) -> [LockTrigger] {
        let kinds: [LockTrigger.Kind] =
            [.sleep, .shutdown] + (screen ? [.screen] : []) + (wantsLogout ? [.logout] : [])
        return kinds.map { LockTrigger(kind: $0, armed: false, why: why) }
    }

    private func report(_ sleep: Errno?, _ shutdown: Errno?) {
        func refused(_ error: Errno?) -> String? {
            error.map { "the login manager refuses to wait: \($0)" }
        }
        var triggers = [
            LockTrigger(kind: .sleep, armed: true, why: refused(sleep)),
            LockTrigger(kind: .shutdown, armed: true, why: refused(shutdown)),
        ]
        if screen { triggers.append(LockTrigger(kind: .screen, armed: true)) }
        if wantsLogout {
            let armed = watchesLogout == true && logoutFailure == nil
            let why = logoutFailure.map { "the login manager does not tell: \($0)" }
            triggers.append(
                LockTrigger(
                    kind: .logout, armed: armed,
                    why: armed ? nil : why ?? "its user had no session at the mount"))
        }
        daemon.report(triggers)
    }

    private func daemonEnds(within milliseconds: Int32) -> Bool {
        var waiting = [pollfd(fd: lifeline, events: Int16(POLLIN), revents: 0)]
        _ = waiting.withUnsafeMutableBufferPointer {
            try? Syscall.poll($0, timeoutMilliseconds: milliseconds)
        }
        return waiting[0].revents != 0
    }
}
