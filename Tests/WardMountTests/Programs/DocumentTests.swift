import Foundation
import Testing

extension MountSuite {
    /// Runs the commands that the documents tell users to type.
    @Suite struct DocumentTests {
        private static let root = URL(fileURLWithPath: #filePath)
            .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()

        /// A line that begins with `$ `, and the output below it.
        private struct Step {
            let command: String
            var output: [String] = []
        }

        /// The steps of the first block after a heading.
        private static func steps(of document: String, after heading: String) throws -> [Step] {
            let text = try String(
                contentsOf: root.appendingPathComponent(document), encoding: .utf8)
            let chapter = try #require(text.range(of: "\n## \(heading)\n"), "no \(heading)")
            let parts = text[chapter.upperBound...].components(separatedBy: "\n```\n")
            var steps: [Step] = []
            for line in try #require(parts.dropFirst().first).components(separatedBy: "\n") {
                if line.hasPrefix("$ ") {
                    steps.append(Step(command: String(line.dropFirst(2))))
                } else if !line.isEmpty {
                    steps[steps.count - 1].output.append(line)
                }
            }
            return steps
        }

        /// Replaces a stored name and a recovery code, which differ each time, and sorts names.
        private static func lasting(_ lines: [String]) -> [String] {
            lines.map { line in
                if line.hasPrefix("recovery code: ") { return "recovery code: …" }
                let isName =
                    line.utf8.count >= 28
                    && line.allSatisfy { $0.isLetter || $0.isNumber || "-_".contains($0) }
                return isName ? "a name of \(line.utf8.count) bytes" : line
            }.sorted()
        }

        @Test("README: the state of a volume by its socket, in Python", arguments: User.usual)
        func python(user: User) throws {
            let text = try String(
                contentsOf: Self.root.appendingPathComponent("README.md"), encoding: .utf8)
            let begun = try #require(
                text.components(separatedBy: "\n```python\n").dropFirst().first)
            let program = try #require(begun.components(separatedBy: "\n```\n").first)
            let volume = try MountedVolume(as: user)
            let printed = try volume.shell(
                """
                cd "$OUT"; ln -s "$MNT" papers
                '\(TestEnvironment.shared.python)' - <<'PROGRAM'
                \(program)
                PROGRAM
                """)
            #expect(printed.contains("'state': 'unlocked'"), "\(printed)")
        }

        @Test("README: a minute with it, from nothing", arguments: User.usual)
        func aMinute(user: User) throws {
            let steps = try Self.steps(of: "README.md", after: "A minute with it")
            #expect(steps.count > 20)
            let place = try MountedVolume(directoryOnlyAs: user)
            place.variables["PATH"] =
                TestEnvironment.shared.base + ":" + TestEnvironment.shared.variables["PATH"]!
            let home = place.directory + "/home"
            let script = steps.map { "echo :::\n\($0.command)" }.joined(separator: "\n")
            let done = try place.shell(
                "set +e; cd ~; exec 2>&1\n\(script)\necho :::; cd /; rm -f passcode; true")
            let printed = done.components(separatedBy: ":::\n").dropFirst().map {
                $0.split(separator: "\n").map {
                    $0.replacingOccurrences(of: home, with: "/home/anna")
                }
            }
            #expect(printed.count == steps.count + 1, "\(done)")
            for (step, lines) in zip(steps, printed) {
                #expect(
                    Self.lasting(lines) == Self.lasting(step.output), "$ \(step.command): \(lines)")
            }
        }
    }
}
