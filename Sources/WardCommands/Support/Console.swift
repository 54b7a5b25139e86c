import CWardLinux
import Glibc
import WardControl
import WardSystem

/// Output of a command: results go to stdout; notes, questions and progress go to stderr.
struct Console: Sendable {
    /// Suppresses notes and confirmations.
    var isQuiet = false
    /// Prints reports as JSON, one object per line.
    var isJSON = false
    /// Allows questions to the user.
    var mayAsk = true
    /// For a daemon: its work is more important than its output, so a write error does not end it.
    var mayLoseOutput = false

    let output = Style(descriptor: 1)
    let notes = Style(descriptor: 2)

    /// Prints a result on stdout.
    func result(_ line: String) {
        Console.write(line + "\n", to: 1, mayLose: mayLoseOutput)
    }

    /// Prints many results, one write for every thousand, so that readers see them soon.
    func results(_ lines: some Sequence<String>) {
        var text = ""
        var count = 0
        for line in lines {
            text += line
            text += "\n"
            count += 1
            if count % 1000 == 0 {
                Console.write(text, to: 1, mayLose: mayLoseOutput)
                text = ""
            }
        }
        if !text.isEmpty { Console.write(text, to: 1, mayLose: mayLoseOutput) }
    }

    /// Prints a confirmation on stdout, unless quiet or in JSON.
    func confirm(_ line: String) {
        if !isQuiet && !isJSON { result(line) }
    }

    /// Prints a note on stderr, unless quiet.
    func note(_ line: String) {
        if !isQuiet { Console.write("ward: note: \(line)\n", to: 2) }
    }

    func failure(_ failure: CommandFailure) {
        Console.write(failure.rendered + "\n", to: 2)
    }

    /// Prints one JSON object on a line of its own.
    func json(_ value: JSONValue) {
        result(value.text())
    }

    /// Writes everything. On stdout a reader that closed the pipe ends the command silently, and
    /// any other error ends it with a message. `mayLose` ignores errors.
    static func write(_ text: String, to descriptor: Int32, mayLose: Bool = false) {
        let bytes = Array(text.utf8)
        do throws(Errno) {
            try Syscall.writeAll(descriptor, bytes, bytes.count)
        } catch {
            guard descriptor == 1, !mayLose else { return }
            if error != .brokenPipe {
                let failure = CommandFailure(
                    "cannot write the output", errno: error, status: .inputOutput)
                write(failure.rendered + "\n", to: 2)
            }
            exit(ExitStatus.inputOutput.rawValue)
        }
    }

    static func isTerminal(_ descriptor: Int32) -> Bool { isatty(descriptor) == 1 }
}

/// Colours, for a terminal that supports them: no-color.org and `TERM=dumb`.
struct Style: Sendable {
    let isColoured: Bool

    init(descriptor: Int32) {
        let noColour = getenv("NO_COLOR").map { $0.pointee != 0 } ?? false
        let term = getenv("TERM").map { String(cString: $0) } ?? "dumb"
        isColoured = Console.isTerminal(descriptor) && !noColour && term != "dumb"
    }

    func bold(_ text: String) -> String { sgr("1", text) }
    func dim(_ text: String) -> String { sgr("2", text) }
    func red(_ text: String) -> String { sgr("31", text) }
    func green(_ text: String) -> String { sgr("32", text) }
    func yellow(_ text: String) -> String { sgr("33", text) }
    func blue(_ text: String) -> String { sgr("1;34", text) }

    private func sgr(_ code: String, _ text: String) -> String {
        isColoured ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
    }
}
