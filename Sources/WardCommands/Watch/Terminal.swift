import CWardLinux
import Glibc
import WardSystem

/// The terminal of `ward watch`: its other screen, keys without Return, and everything put back on
/// every way out.
///
/// The standard sequences of ECMA-48 and xterm alone: no library, no terminfo.
final class Terminal {
    private let saved: termios
    private var isOnScreen = false
    private var shown: [String] = []
    private let inColour: Bool

    /// Throws `ENOTTY` where standard input or output is not a terminal.
    init(inColour: Bool) throws(Errno) {
        var settings = termios()
        guard isatty(STDOUT_FILENO) == 1, tcgetattr(STDIN_FILENO, &settings) == 0 else {
            throw Errno(rawValue: ENOTTY)
        }
        saved = settings
        self.inColour = inColour
    }

    deinit { leave() }

    /// Whether the locale of this process says UTF-8, by the first variable of locale(7) that is
    /// set.
    static var isUnicode: Bool {
        for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
            guard let value = getenv(name).map({ String(cString: $0).lowercased() }), !value.isEmpty
            else { continue }
            return value.contains("utf-8") || value.contains("utf8")
        }
        return false
    }

    /// As the terminal says, else 80 × 24.
    var size: (columns: Int, rows: Int) {
        var size = winsize()
        guard ward_ioctl_pointer(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0,
            size.ws_row > 0
        else { return (80, 24) }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    /// Takes the other screen; keys come one by one, not echoed. Control-C and its like stay
    /// signals.
    func enter() {
        guard !isOnScreen else { return }
        isOnScreen = true
        var settings = saved
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
        // Other screen, cursor hidden, lines cut at the edge rather than continued.
        put("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l\u{1B}[2J")
        shown = []
    }

    /// Gives everything back.
    func leave() {
        guard isOnScreen else { return }
        isOnScreen = false
        put("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l")
        var settings = saved
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    /// Everything is drawn anew with the next `show`: the size changed.
    func forget() {
        shown = []
        put("\u{1B}[2J")
    }

    /// Shows these lines; only those that differ from what is there are sent. False where the
    /// terminal is gone.
    @discardableResult
    func show(_ lines: [WatchLine]) -> Bool {
        let rendered = lines.map { $0.rendered(inColour: inColour) }
        var output = ""
        for row in 0..<max(rendered.count, shown.count) {
            let line = row < rendered.count ? rendered[row] : ""
            if row < shown.count, shown[row] == line { continue }
            output += "\u{1B}[\(row + 1);1H\(line)\u{1B}[K"
        }
        shown = rendered
        return output.isEmpty || put(output)
    }

    @discardableResult
    private func put(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return (try? Syscall.writeAll(STDOUT_FILENO, bytes, bytes.count)) != nil
    }
}
