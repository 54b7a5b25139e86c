import WardConsole
import WardSystem

/// Prints the demo's chapters, sentences, commands, output and checks.
struct Narrator: Sendable {
    let isQuiet: Bool
    private let style = Style(descriptor: 1)

    init(isQuiet: Bool) { self.isQuiet = isQuiet }

    func chapter(_ number: Int, _ title: String) {
        say("")
        say(style.bold("\(number). \(title)"))
    }

    func say(_ text: String) {
        if !isQuiet { write(text + "\n") }
    }

    func command(_ words: [String]) {
        say(style.blue("   $ " + words.map { Text.shellQuoted($0) }.joined(separator: " ")))
    }

    func output(_ text: String, limit: Int = 14) {
        let lines = text.split(separator: "\n")
        for line in lines.prefix(limit) { say(style.dim("     " + line)) }
        if lines.count > limit { say(style.dim("     … \(lines.count - limit) more lines")) }
    }

    func good(_ text: String) { say(style.green("   ✓ ") + text) }

    /// Prints a failed check on stdout, even when quiet.
    func bad(_ text: String) { write(style.red("   ✗ ") + text + "\n") }

    /// Where the reader closed the pipe, a pending signal ends the demo after its clean-up.
    func write(_ text: String) { Console.write(text, to: 1, mayLose: true) }
}
