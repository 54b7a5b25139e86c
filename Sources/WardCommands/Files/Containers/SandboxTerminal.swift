import CWardLinux
import Glibc
import WardSystem

/// A separate terminal, pty(7), for the command in a sandbox, and the relay to ward's terminal.
///
/// A program can read any terminal that it has open. In the background the command could read keys
/// that are meant for another program, such as a passcode. Here it gets keys only while ward is in
/// the foreground and standard input is the terminal. In a pipeline it gets none: the keys may be
/// for a pager.
final class SandboxTerminal: @unchecked Sendable {
    // Sendable: after `begin` the relay's thread alone uses the state, until `end` has joined it.

    /// The delay until a new window size or a return to the foreground is seen.
    private static let tickMilliseconds: Int32 = 200

    /// The numbers of the standard streams that are terminals.
    private let streams: [Int32]
    private let getsKeys: Bool
    /// The relay's end and the command's end; -1 where there is none.
    private var master: Int32 = -1
    private var slave: Int32 = -1
    private var thread: SystemThread?
    /// The original modes of ward's terminal, where they were changed.
    private var saved: termios?

    /// Makes a terminal where any standard stream is one.
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

    /// The standard stream for the command.
    func stream(_ number: Int32) -> ChildProcess.Stream {
        streams.contains(number) ? .descriptor(slave) : .inherit
    }

    /// Starts the relay. Call it after the command was started.
    func begin() throws(Errno) {
        guard !streams.isEmpty else { return }
        // The relay ends when the last program closes the terminal.
        Syscall.close(slave)
        slave = -1
        thread = try SystemThread("ward-terminal") { [self] in relay() }
    }

    /// Call it after the command's end. Waits until all output is shown and the terminal has its
    /// old modes.
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
                // Without POLLIN, poll still reports a hang-up.
                pollfd(fd: input, events: Int16(isTypedFor ? POLLIN : 0), revents: 0),
            ]
            _ = poll(&polled, 2, SandboxTerminal.tickMilliseconds)
            if polled[0].revents & Int16(POLLOUT) != 0 {
                typed.removeFirst(max(0, write(master, typed, typed.count)))
            }
            if polled[1].revents != 0 {
                typed = isTypedFor ? SandboxTerminal.read(input) : []
                // ward's terminal is gone. Closing the command's terminal sends SIGHUP to the
                // command.
                if typed.isEmpty { break }
            }
            if polled[0].revents & Int16(POLLIN | POLLHUP | POLLERR) != 0 {
                let written = SandboxTerminal.read(master)
                // EIO: no program has the other end open any more.
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

    /// Returns true where keys are for the command now. Sets raw mode then: the command's own
    /// terminal makes lines and signals.
    private func takeForeground() -> Bool {
        var modes = termios()
        guard isInForeground, tcgetattr(input, &modes) == 0 else { return false }
        // A shell that was in the foreground has restored its own modes.
        if modes.c_lflag & tcflag_t(ICANON | ECHO | ISIG) != 0 {
            if saved == nil { saved = modes }
            cfmakeraw(&modes)
            tcsetattr(input, TCSADRAIN, &modes)
        }
        return true
    }

    /// Copies the window size. A changed size sends SIGWINCH to the command.
    private func copySize() {
        var size = winsize()
        guard ward_ioctl_pointer(input, UInt(TIOCGWINSZ), &size) == 0 else { return }
        _ = ward_ioctl_pointer(master, UInt(TIOCSWINSZ), &size)
    }

    // MARK: In the sandbox

    /// Runs in the child before it becomes the command. Begins a session whose controlling terminal
    /// is the first standard stream that is one.
    static func enter() {
        _ = setsid()
        for number in Int32(0)..<3 where isatty(number) == 1 {
            // Fails without effect where the terminal belongs to another session.
            _ = ward_ioctl_pointer(number, UInt(TIOCSCTTY), nil)
            return
        }
    }
}
