import CWardLinux
import Glibc
import WardSystem

/// The terminal of `ward watch`: the alternate screen, keys without Return, and restored modes at
/// every end.
///
/// Uses only standard sequences of ECMA-48 and xterm: no library, no terminfo.
final class Terminal {
    private let saved: termios
    private var isOnScreen = false
    private var shown: [String] = []
    private let inColour: Bool

    /// Throws `ENOTTY` where standard input or output is no terminal.
    init(inColour: Bool) throws(Errno) {
        var settings = termios()
        guard isatty(STDOUT_FILENO) == 1, tcgetattr(STDIN_FILENO, &settings) == 0 else {
            throw Errno(rawValue: ENOTTY)
        }
        saved = settings
        self.inColour = inColour
    }

    deinit { leave() }

    /// Whether the locale uses UTF-8, by the first variable of locale(7) that is set.
    static var isUnicode: Bool {
        for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
            guard let value = getenv(name).map({ String(cString: $0).lowercased() }), !value.isEmpty
            else { continue }
            return value.contains("utf-8") || value.contains("utf8")
        }
        return false
    }

    /// The terminal's size; 80 × 24 where it is unknown.
    var size: (columns: Int, rows: Int) {
        var size = winsize()
        guard ward_ioctl_pointer(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0,
            size.ws_row > 0
        else { return (80, 24) }
        return (Int(size.ws_col), Int(size.ws_row))
    }

    /// Takes the alternate screen and reads single keys without echo. Keys such as Control-C stay
    /// signals.
    func enter() {
        guard !isOnScreen else { return }
        isOnScreen = true
        var settings = saved
        settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
        // Alternate screen, hidden cursor, and long lines cut at the edge.
        put("\u{1B}[?1049h\u{1B}[?25l\u{1B}[?7l\u{1B}[2J")
        shown = []
    }

    /// Restores screen and modes.
    func leave() {
        guard isOnScreen else { return }
        isOnScreen = false
        put("\u{1B}[?7h\u{1B}[?25h\u{1B}[?1049l")
        var settings = saved
        tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }

    /// Makes the next `show` redraw everything, after a change of size.
    func forget() {
        shown = []
        put("\u{1B}[2J")
    }

    /// Shows these lines and sends only changed ones. Returns false where the terminal is gone.
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
