import Glibc
import WardControl
import WardSystem

/// Output of a command: results go to stdout; notes, questions and progress go to stderr.
package struct Console: Sendable {
    /// Suppresses notes and confirmations.
    package var isQuiet: Bool
    /// Prints reports as JSON, one object per line.
    package var isJSON: Bool
    /// Allows questions to the user.
    package var mayAsk: Bool
    /// For a daemon: its work is more important than its output, so a write error does not end it.
    package var mayLoseOutput: Bool

    package let output = Style(descriptor: 1)
    package let notes = Style(descriptor: 2)

    package init(
        isQuiet: Bool = false, isJSON: Bool = false, mayAsk: Bool = true,
        mayLoseOutput: Bool = false
    ) {
        self.isQuiet = isQuiet
        self.isJSON = isJSON
        self.mayAsk = mayAsk
        self.mayLoseOutput = mayLoseOutput
    }

    /// Prints a result on stdout.
    package func result(_ line: String) {
        Console.write(line + "\n", to: 1, mayLose: mayLoseOutput)
    }

    /// Prints many results, one write for every thousand, so that readers see them soon.
    package func results(_ lines: some Sequence<String>) {
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
    package func confirm(_ line: String) {
        if !isQuiet && !isJSON { result(line) }
    }

    /// Prints a note on stderr, unless quiet.
    package func note(_ line: String) {
        if !isQuiet { Console.write("ward: note: \(line)\n", to: 2) }
    }

    package func failure(_ failure: CommandFailure) {
        Console.write(failure.rendered + "\n", to: 2)
    }

    /// Prints one JSON object on a line of its own.
    package func json(_ value: JSONValue) {
        result(value.text())
    }

    /// Writes everything. On stdout a reader that closed the pipe ends the command silently, and
    /// any other error ends it with a message. `mayLose` ignores errors.
    package static func write(_ text: String, to descriptor: Int32, mayLose: Bool = false) {
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

    package static func isTerminal(_ descriptor: Int32) -> Bool { isatty(descriptor) == 1 }
}

/// Colours, for a terminal that supports them: no-color.org and `TERM=dumb`.
package struct Style: Sendable {
    package let isColoured: Bool

    package init(descriptor: Int32) {
        let noColour = getenv("NO_COLOR").map { $0.pointee != 0 } ?? false
        let term = getenv("TERM").map { String(cString: $0) } ?? "dumb"
        isColoured = Console.isTerminal(descriptor) && !noColour && term != "dumb"
    }

    package func bold(_ text: String) -> String { sgr("1", text) }
    package func dim(_ text: String) -> String { sgr("2", text) }
    package func red(_ text: String) -> String { sgr("31", text) }
    package func green(_ text: String) -> String { sgr("32", text) }
    package func yellow(_ text: String) -> String { sgr("33", text) }
    package func blue(_ text: String) -> String { sgr("1;34", text) }

    private func sgr(_ code: String, _ text: String) -> String {
        isColoured ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
    }
}
