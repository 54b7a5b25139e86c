import CWardLinux
import Glibc
import WardConsole
import WardSystem

/// The controlling terminal, so that questions work while stdin and stdout are redirected.
struct TerminalPrompt: ~Copyable {
    private let terminal: OwnedDescriptor

    /// Throws where there is no controlling terminal.
    init() throws(Errno) {
        terminal = try OwnedDescriptor(opening: "/dev/tty", O_RDWR)
    }

    /// Reads one line without echo, including its newline; returns the number of bytes.
    ///
    /// Signals that would end or stop the program are blocked while the echo is off. The terminal
    /// is restored before they are delivered. After a stop the question is asked again.
    borrowing func readHidden(
        _ question: String, into buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        while true {
            if let count = try readHiddenOnce(question, into: buffer) { return count }
        }
    }

    /// Reads one line; nil at the end of input.
    borrowing func readLine(_ question: String) throws(Errno) -> String? {
        say(question)
        var line: [UInt8] = []
        var byte: UInt8 = 0
        while true {
            if try Syscall.read(terminal.rawValue, &byte, 1) == 0 { return nil }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
    }

    private borrowing func say(_ text: String) { Console.write(text, to: terminal.rawValue) }

    /// Returns nil where a signal arrived and was delivered.
    private borrowing func readHiddenOnce(
        _ question: String, into buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int? {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP] { sigaddset(&signals, signal) }
        var maskBefore = sigset_t()
        pthread_sigmask(SIG_BLOCK, &signals, &maskBefore)
        // Unblocked last: a pending signal then takes effect with the terminal restored.
        defer { pthread_sigmask(SIG_SETMASK, &maskBefore, nil) }
        let arrivals = OwnedDescriptor(
            adopting: try Syscall.check { signalfd(-1, &signals, Int32(SFD_CLOEXEC)) })

        var settings = termios()
        _ = try Syscall.check { tcgetattr(terminal.rawValue, &settings) }
        var hidden = settings
        hidden.c_lflag &= ~tcflag_t(ECHO)
        hidden.c_lflag |= tcflag_t(ICANON | ISIG | ECHONL)
        _ = try Syscall.check { tcsetattr(terminal.rawValue, TCSAFLUSH, &hidden) }
        defer { _ = tcsetattr(terminal.rawValue, TCSAFLUSH, &settings) }
        say(question)

        var count = 0
        while count < buffer.count {
            var waits = [
                pollfd(fd: terminal.rawValue, events: Int16(POLLIN), revents: 0),
                pollfd(fd: arrivals.rawValue, events: Int16(POLLIN), revents: 0),
            ]
            _ = try waits.withUnsafeMutableBufferPointer { waits throws(Errno) in
                try Syscall.poll(waits, timeoutMilliseconds: -1)
            }
            if waits[1].revents != 0 {
                explicit_bzero(buffer.baseAddress!, buffer.count)
                say("\n")
                return nil
            }
            let got = try Syscall.read(
                terminal.rawValue, buffer.baseAddress! + count, buffer.count - count)
            if got == 0 { break }
            count += got
            if buffer[count - 1] == UInt8(ascii: "\n") { break }
        }
        return count
    }
}
