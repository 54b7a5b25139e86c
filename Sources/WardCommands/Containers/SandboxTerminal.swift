import CWardLinux
import Glibc
import WardSystem

/// A terminal of its own for the command in a sandbox, pty(7), and what goes between it and the
/// terminal that ward runs in.
///
/// Programs that have a terminal open may read it: left in the background, the command would get
/// what is typed there for another program, a passcode. By this it gets only what is typed while
/// ward is in the foreground, where its standard input is the terminal, and none of it in a
/// pipeline: there keys may be for another program, a pager.
final class SandboxTerminal: @unchecked Sendable {
    // Sendable: after `begin` all of it belongs to the relay's thread, until `end` has waited for
    // that.

    /// How soon a new size of the window, or a return to the foreground, is seen.
    private static let tickMilliseconds: Int32 = 200

    /// Which of the standard streams are terminals.
    private let streams: [Int32]
    private let getsKeys: Bool
    /// The relay's end, and the command's; -1 where there is none.
    private var master: Int32 = -1
    private var slave: Int32 = -1
    private var thread: SystemThread?
    /// The modes of the terminal that ward runs in, where they were changed.
    private var saved: termios?

    /// Makes one where any of the standard streams is a terminal.
    init() throws(Errno) {
        streams = (0..<3).filter { isatty($0) == 1 }
        getsKeys =
            streams.contains(0)
            && ![Int32(1), 2].contains { number in
                guard let status = try? Syscall.fstat(number) else { return false }
                return [S_IFIFO, S_IFSOCK].contains(status.st_mode & S_IFMT)
            }
        guard let first = streams.first else { return }
        master = try Syscall.check { ward_open_terminal() }
        slave = try Syscall.check { ward_open_terminal_peer(master) }
        var modes = termios()
        if tcgetattr(first, &modes) == 0 { tcsetattr(slave, TCSANOW, &modes) }
        copySize()
    }

    deinit {
        if slave >= 0 { Syscall.close(slave) }
        if master >= 0 { Syscall.close(master) }
    }

    /// The kind of a standard stream of the command.
    func stream(_ number: Int32) -> ChildProcess.Stream {
        streams.contains(number) ? .descriptor(slave) : .inherit
    }

    /// After the command was started.
    func begin() throws(Errno) {
        guard !streams.isEmpty else { return }
        // The last program that has it open ends the relay.
        Syscall.close(slave)
        slave = -1
        thread = try SystemThread("ward-terminal") { [self] in relay() }
    }

    /// After the command's end: waits until all that it wrote is shown, and the terminal is as it
    /// was.
    func end() {
        thread?.join()
        thread = nil
    }

    // MARK: The relay

    private var input: Int32 { streams[0] }
    private var output: Int32 { streams.first { $0 != 0 } ?? 0 }

    private func relay() {
        var typed: [UInt8] = []
        while true {
            copySize()
            let isTypedFor = getsKeys && takeForeground() && typed.isEmpty
            var polled = [
                pollfd(
                    fd: master, events: Int16(POLLIN | (typed.isEmpty ? 0 : POLLOUT)), revents: 0),
                // Without POLLIN its end is told all the same.
                pollfd(fd: input, events: Int16(isTypedFor ? POLLIN : 0), revents: 0),
            ]
            _ = poll(&polled, 2, SandboxTerminal.tickMilliseconds)
            if polled[0].revents & Int16(POLLOUT) != 0 {
                typed.removeFirst(max(0, write(master, typed, typed.count)))
            }
            if polled[1].revents != 0 {
                typed = isTypedFor ? SandboxTerminal.read(input) : []
                // The terminal has gone, and the command's goes with it: it gets SIGHUP.
                if typed.isEmpty { break }
            }
            if polled[0].revents & Int16(POLLIN | POLLHUP | POLLERR) != 0 {
                let written = SandboxTerminal.read(master)
                // EIO: nobody has the other end any more.
                if written.isEmpty { break }
                try? Syscall.writeAll(output, written, written.count)
            }
        }
        Syscall.close(master)
        master = -1
        if var saved, isInForeground { tcsetattr(input, TCSADRAIN, &saved) }
    }

    private static func read(_ descriptor: Int32) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            return Array(buffer.prefix(max(0, count)))
        }
    }

    private var isInForeground: Bool { tcgetpgrp(input) == getpgrp() }

    /// Whether keys are for the command now. Then its own terminal makes lines and signals of them,
    /// and this one passes them on as they are.
    private func takeForeground() -> Bool {
        var modes = termios()
        guard isInForeground, tcgetattr(input, &modes) == 0 else { return false }
        // A shell that had the foreground meanwhile has put back its own.
        if modes.c_lflag & tcflag_t(ICANON | ECHO | ISIG) != 0 {
            if saved == nil { saved = modes }
            cfmakeraw(&modes)
            tcsetattr(input, TCSADRAIN, &modes)
        }
        return true
    }

    /// Where it is another one, the command gets SIGWINCH.
    private func copySize() {
        var size = winsize()
        guard ward_ioctl_pointer(input, UInt(TIOCGWINSZ), &size) == 0 else { return }
        _ = ward_ioctl_pointer(master, UInt(TIOCSWINSZ), &size)
    }

    // MARK: In the sandbox

    /// Called by the command's process before it is the command: begins a session, with the first
    /// standard stream that is a terminal as its own.
    static func enter() {
        _ = setsid()
        for number in Int32(0)..<3 where isatty(number) == 1 {
            // Where it is that of a session already, nothing changes.
            _ = ward_ioctl_pointer(number, UInt(TIOCSCTTY), nil)
            return
        }
    }
}
