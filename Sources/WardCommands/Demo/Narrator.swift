import WardSystem

/// How the demo speaks: chapters, sentences, commands with their output, and checks.
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

    /// A check that did not hold is shown even when quiet: on stdout, where the story is.
    func bad(_ text: String) { write(style.red("   ✗ ") + text + "\n") }

    /// Where the reader went away a signal is pending, which ends the demo after its clean-up.
    func write(_ text: String) { Console.write(text, to: 1, mayLose: true) }
}
