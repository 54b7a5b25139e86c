import CWardLinux
import Glibc
import WardControl
import WardSystem

/// Where output goes: results to stdout; notes, questions and progress to stderr.
struct Console: Sendable {
    /// Notes and confirmations are left out.
    var isQuiet = false
    /// Reports are JSON, one object a line.
    var isJSON = false
    /// Questions may be asked.
    var mayAsk = true
    /// What goes on is more important than that somebody reads: a daemon's.
    var mayLoseOutput = false

    let output = Style(descriptor: 1)
    let notes = Style(descriptor: 2)

    /// A result, on stdout.
    func result(_ line: String) {
        Console.write(line + "\n", to: 1, mayLose: mayLoseOutput)
    }

    /// Many results, with one call for every thousand: whoever reads sees them soon.
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

    /// "Done": said on stdout to people, not in JSON and not when quiet.
    func confirm(_ line: String) {
        if !isQuiet && !isJSON { result(line) }
    }

    /// Something worth knowing, on stderr.
    func note(_ line: String) {
        if !isQuiet { Console.write("ward: note: \(line)\n", to: 2) }
    }

    func failure(_ failure: CommandFailure) {
        Console.write(failure.rendered + "\n", to: 2)
    }

    /// One JSON object on a line of its own.
    func json(_ value: JSONValue) {
        result(value.text())
    }

    /// Writes everything. A reader who went away ends the command the way SIGPIPE would; a full
    /// disk is an error.
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

/// Colours, for a terminal that wants them: no-color.org, and `TERM=dumb`.
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
