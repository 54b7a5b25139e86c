import ArgumentParser
import CWardLinux
import Glibc
import WardControl
import WardSystem

/// Started by the daemon, never by a person. A client of its control socket that listens to the login manager.
struct SessionWatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "session-watch", abstract: "Lock before sleep and shutdown.",
        shouldDisplay: false)

    /// After the bus was lost, or was not there.
    static let retryMilliseconds: Int32 = 5000

    @Option(help: "The control socket of the volume.") var socket: String
    @Option(help: "Where the volume is mounted.") var mountPoint: String
    @Option(help: "Read end of a pipe that the daemon keeps open.") var fd: Int32
    @Flag(help: "Lock with the screen, too.") var screen = false

    func run() throws {
        while true {
            do throws(Errno) {
                if try watch() { return }
            } catch {
                // The bus went away, or this machine has none yet.
            }
            if daemonEnds(within: SessionWatchCommand.retryMilliseconds) { return }
        }
    }

    /// Watches until the daemon ends: then true.
    private func watch() throws(Errno) -> Bool {
        let bus = try SystemBus(sessions: screen)
        var delay = DelayLock("Lock the protected files in \(mountPoint)")
        delay.take(bus)
        // Most of this process's memory is code that only its start needed.
        ProgramText.letGo()
        while true {
            while let signal = try bus.next() {
                switch signal {
                case .sleep(begins: true):
                    lock(now: true, reason: "the machine goes to sleep")
                    delay.release()
                case .shutdown(begins: true):
                    lock(now: true, reason: "the machine shuts down")
                    delay.release()
                case .sleep(begins: false), .shutdown(begins: false):
                    delay.take(bus)
                case .screenLocked(let session):
                    if concernsUs(session, bus) {
                        lock(now: false, reason: "the screen was locked")
                    }
                case .other: break
                }
            }
            var waiting = [bus.pollRequest, pollfd(fd: fd, events: Int16(POLLIN), revents: 0)]
            let timeout = bus.timeoutMilliseconds
            _ = waiting.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: timeout)
            }
            if waiting[1].revents != 0 { return true }
        }
    }

    /// A session of the daemon's user; of anybody for root, whose volumes are the machine's.
    private func concernsUs(_ session: String, _ bus: borrowing SystemBus) -> Bool {
        guard let uid = try? bus.user(ofSession: session) else { return false }
        return geteuid() == 0 || uid == geteuid()
    }

    /// Returns when class A is gone (`now`: trusted hosts do not hold it open), or with the grace period when that has begun. The daemon has a deadline of its own;
    /// where it does not answer there is nobody to tell.
    private func lock(now: Bool, reason: String) {
        _ = try? ControlClient(socketPath: socket, timeout: .seconds(20))
            .lock(now: now, reason: reason, endingHosts: now)
    }

    private func daemonEnds(within milliseconds: Int32) -> Bool {
        var waiting = [pollfd(fd: fd, events: Int16(POLLIN), revents: 0)]
        _ = waiting.withUnsafeMutableBufferPointer {
            try? Syscall.poll($0, timeoutMilliseconds: milliseconds)
        }
        return waiting[0].revents != 0
    }
}

/// What makes sleep and shutdown wait for this process, while it is held; for some seconds at most.
private struct DelayLock: ~Copyable {
    private let why: String
    private var descriptor: OwnedDescriptor?

    init(_ why: String) {
        self.why = why
        descriptor = nil
    }

    /// Without a login manager there is no lock to take, and no signal either.
    mutating func take(_ bus: borrowing SystemBus) { descriptor = try? bus.delayLock(why) }

    mutating func release() { descriptor = nil }
}
