import Foundation
import Testing

/// A program in a terminal of its own, and its screen: `Scripts/terminal.py`.
final class Terminal {
    struct Screen: Decodable {
        var ok: Bool
        var lines: [String]
        /// The bytes that the program has written so far.
        var bytes: Int
        /// The exit status once it has ended, as in Python: negative for a signal.
        var status: Int32?
        /// Whether the terminal's modes are the ones from before.
        var restored: Bool?
        var alternate: Bool?
        var cursor: Bool?

        var text: String { lines.joined(separator: "\n") }
    }

    private let child: Child
    private let requests: FileHandle
    private let answers: FileHandle
    private var pending = Data()

    /// Runs `ward` with these arguments as the volume's user.
    init(
        _ volume: MountedVolume, columns: Int = 80, rows: Int = 24,
        environment more: [String: String] = [:], _ arguments: String..., words: [String] = []
    ) throws {
        let down = try Child.pipe()
        let up = try Child.pipe()
        let environment = TestEnvironment.shared
        let variables = volume.environment.merging(["TERM": "xterm"]) { $1 }.merging(more) { $1 }
        child = try Child(
            volume.user.prefix + [
                environment.python, environment.script("terminal.py"), "\(columns)", "\(rows)",
                "--", environment.ward,
            ] + arguments + words, environment: variables, input: down.reading, output: up.writing,
            errors: STDERR_FILENO)
        close(down.reading)
        close(up.writing)
        requests = FileHandle(fileDescriptor: down.writing, closeOnDealloc: true)
        answers = FileHandle(fileDescriptor: up.reading, closeOnDealloc: true)
    }

    deinit {
        try? requests.close()
        _ = child.wait(seconds: 3)
        child.kill()
    }

    private func ask(_ request: [Any]) throws -> Screen {
        var line = try JSONSerialization.data(withJSONObject: request)
        line.append(UInt8(ascii: "\n"))
        try requests.write(contentsOf: line)
        while true {
            if let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
                let answer = pending[..<end]
                pending = Data(pending[(end + 1)...])
                return try JSONDecoder().decode(Screen.self, from: answer)
            }
            let piece = answers.availableData
            guard !piece.isEmpty else { throw SupportError("the terminal is gone") }
            pending += piece
        }
    }

    /// Waits until `text` is in a line of the screen.
    @discardableResult
    func wait(
        for text: String, seconds: Int = 20, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Screen {
        let screen = try ask([
            "wait", text, Double(seconds) * TestEnvironment.patience,
        ])
        #expect(screen.ok, "no \(text) on\n\(screen.text)", sourceLocation: sourceLocation)
        return screen
    }

    /// Waits until the program has written more than so many bytes since its start.
    func output(
        beyond bytes: Int, seconds: Int = 20, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Screen {
        let screen = try ask(["beyond", bytes, Double(seconds) * TestEnvironment.patience])
        #expect(screen.ok, "nothing more is written", sourceLocation: sourceLocation)
        return screen
    }

    func type(_ text: String) throws { _ = try ask(["type", text]) }
    func resize(columns: Int, rows: Int) throws { _ = try ask(["resize", columns, rows]) }
    /// Sends a signal. After SIGTSTP, waits until the program has stopped.
    func signal(_ number: Int32) throws { _ = try ask(["signal", number]) }
    /// Waits for the program's end.
    func end(seconds: Int = 20) throws -> Screen {
        try ask(["end", Double(seconds) * TestEnvironment.patience])
    }
}
