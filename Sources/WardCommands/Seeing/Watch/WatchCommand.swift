import ArgumentParser
import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardSystem

struct WatchCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Watch a mounted volume on the terminal.",
        discussion: """
            Its state and what is left of the grace period, the classes that can be read, who uses \
            files of class A, what is not stored yet, passcode tries left, and the latest events. It \
            stays when the volume is unmounted, and shows it when it is back.

            Keys: q or Control-C quits, l locks as ward lock does, L locks at once as ward lock --now.
            For scripts: ward events --follow, ward status --json.

            Examples:
              ward watch
              ward watch ~/papers
              ssh -t home ward watch papers
            """)

    @OptionGroup var target: MountPointArgument

    /// The shortest time between two drawings.
    private static let shortestPause = Duration.milliseconds(50)

    func run() throws {
        let what = "cannot watch"
        let volume = try target.find(what)
        _ = try VolumeConnection(what, path: target.mountpoint, volume: volume)
        let environment = getenv("TERM").map { String(cString: $0) } ?? "dumb"
        let terminal: Terminal
        do throws(Errno) {
            if environment == "dumb" { throw Errno(rawValue: ENOTTY) }
            terminal = try Terminal(inColour: Style(descriptor: STDOUT_FILENO).isColoured)
        } catch {
            throw CommandFailure(
                what, target.mountpoint, why: "this is not a terminal that can show it",
                hint: "ward events --follow tells the same line by line", status: .usage)
        }
        let feed: WatchFeed
        do throws(Errno) {
            feed = try WatchFeed(volume, place: target.mountpoint ?? ".")
        } catch {
            throw CommandFailure(what, target.mountpoint, errno: error)
        }
        let signals = WatchSignals()
        feed.start()
        terminal.enter()
        let ending = WatchCommand.loop(terminal, feed, signals)
        terminal.leave()
        if let ending { signals.pass(on: ending) }
    }

    /// Runs until a key or a signal ends it; returns the signal.
    private static func loop(
        _ terminal: Terminal, _ feed: WatchFeed, _ signals: borrowing WatchSignals
    ) -> Int32? {
        var drawnAt = Duration.zero
        while true {
            let pause = drawnAt + shortestPause - SystemClock.monotonic()
            let isWaiting = pause > .zero
            if !isWaiting {
                drawnAt = SystemClock.monotonic()
                let size = terminal.size
                var scene = feed.scene
                scene.clock = LocalTime.clock(time(nil))
                let screen = WatchScreen(
                    columns: size.columns, rows: size.rows, isUnicode: Terminal.isUnicode)
                if !terminal.show(screen.lines(scene)) { return SIGHUP }
            }
            var waits = [
                pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0),
                pollfd(fd: signals.descriptor, events: Int16(POLLIN), revents: 0),
                // Several changes at once are drawn together.
                pollfd(fd: isWaiting ? -1 : feed.changed, events: Int16(POLLIN), revents: 0),
            ]
            _ = waits.withUnsafeMutableBufferPointer {
                try? Syscall.poll(
                    $0, timeoutMilliseconds: isWaiting ? Int32(pause / .milliseconds(1)) + 1 : 1000)
            }
            if waits[1].revents != 0, let signal = signals.next() {
                switch signal {
                case SIGWINCH: terminal.forget()
                case SIGTSTP:
                    terminal.leave()
                    signals.stop()
                    terminal.enter()
                case SIGCONT: break
                default: return signal
                }
                drawnAt = .zero
            }
            if waits[2].revents != 0 {
                var count: UInt64 = 0
                _ = read(feed.changed, &count, 8)
            }
            if waits[0].revents != 0 {
                guard let keys = keys() else { return nil }
                for key in keys {
                    switch key {
                    case UInt8(ascii: "q"), UInt8(ascii: "Q"): return nil
                    case UInt8(ascii: "l"): feed.lock(now: false)
                    case UInt8(ascii: "L"): feed.lock(now: true)
                    default: break
                    }
                }
            }
        }
    }

    /// The typed keys; nil at the end of input.
    private static func keys() -> [UInt8]? {
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = read(STDIN_FILENO, &bytes, bytes.count)
        if count < 0 { return errno == EINTR || errno == EAGAIN ? [] : nil }
        return count == 0 ? nil : plainKeys(bytes[..<count])
    }

    /// Removes the sequences of arrow and function keys: ESC, perhaps [ or O, parameters, a letter
    /// (ECMA-48). Their letters are not commands.
    static func plainKeys(_ bytes: ArraySlice<UInt8>) -> [UInt8] {
        var rest = bytes
        var keys: [UInt8] = []
        while let byte = rest.popFirst() {
            guard byte == 0x1B else {
                keys.append(byte)
                continue
            }
            switch rest.popFirst() {
            case UInt8(ascii: "["):
                while let next = rest.popFirst(), !(0x40...0x7E).contains(next) {}
            case UInt8(ascii: "O"): _ = rest.popFirst()
            default: break
            }
        }
        return keys
    }
}

/// Signals that end, stop or resize, taken one by one through signalfd(2), so that the terminal is
/// always restored.
struct WatchSignals: ~Copyable {
    private let arrivals: OwnedDescriptor
    private var maskBefore = sigset_t()

    init() {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH] {
            sigaddset(&signals, number)
        }
        pthread_sigmask(SIG_BLOCK, &signals, &maskBefore)
        let number = signalfd(-1, &signals, Int32(SFD_CLOEXEC | SFD_NONBLOCK))
        precondition(number >= 0, "no descriptor left to start with")
        arrivals = OwnedDescriptor(adopting: number)
        // A terminal that is gone then gives a visible error instead of a silent end.
        signal(SIGPIPE, SIG_IGN)
    }

    var descriptor: Int32 { arrivals.rawValue }

    func next() -> Int32? {
        var information = signalfd_siginfo()
        let bytes = MemoryLayout<signalfd_siginfo>.size
        guard read(arrivals.rawValue, &information, bytes) == bytes else { return nil }
        return Int32(information.ssi_signo)
    }

    /// Stops the process as Control-Z does; returns when it continues.
    func stop() { raise(SIGSTOP) }

    /// Ends the process by the given signal.
    func pass(on number: Int32) {
        signal(number, SIG_DFL)
        var before = maskBefore
        var only = sigset_t()
        sigemptyset(&only)
        sigaddset(&only, number)
        kill(getpid(), number)
        pthread_sigmask(SIG_UNBLOCK, &only, nil)
        pthread_sigmask(SIG_SETMASK, &before, nil)
    }
}
