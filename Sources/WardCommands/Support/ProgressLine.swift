import WardConsole
import WardSystem

/// Shows progress on stderr after the first second. Prints nothing where stderr is no terminal or
/// output is quiet.
struct ProgressLine {
    private let isShown: Bool
    private let started = SystemClock.monotonic()
    private var lastDrawn = Duration.zero
    private var isDrawn = false

    init(_ console: Console) {
        isShown = !console.isQuiet && Console.isTerminal(2)
    }

    /// Redraws the line at most ten times a second.
    mutating func update(_ text: @autoclosure () -> String) {
        guard isShown else { return }
        let now = SystemClock.monotonic()
        guard now - started > .seconds(1), now - lastDrawn > .milliseconds(100) else { return }
        lastDrawn = now
        isDrawn = true
        Console.write("\r\u{1B}[K\(Text.printable(text()).prefix(78))", to: 2)
    }

    /// Erases the line; needed before other output and at the end.
    mutating func clear() {
        if isDrawn { Console.write("\r\u{1B}[K", to: 2) }
        isDrawn = false
    }
}
