import Foundation
import Testing

/// The terminal of a user who types these commands: each with its output, its errors and its exit
/// code.
///
/// Compared with `Transcripts/NAME.expected`; `WARD_ACCEPT_TRANSCRIPTS=1` writes that file instead.
struct Transcript {
    let volume: MountedVolume
    private(set) var text = ""

    init(_ volume: MountedVolume) { self.volume = volume }

    /// Runs `ward`, and checks its exit code. A failure must be reported in two lines, fact and
    /// advice.
    @discardableResult
    mutating func ward(
        _ arguments: String..., exit expected: Int32, wrapper: [String] = [],
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Finished {
        try ward(arguments, exit: expected, wrapper: wrapper, sourceLocation: sourceLocation)
    }

    @discardableResult
    mutating func ward(
        _ arguments: [String], exit expected: Int32, wrapper: [String] = [],
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Finished {
        let done = try Child.run(
            wrapper + volume.user.prefix + [TestEnvironment.shared.ward] + arguments,
            environment: volume.environment)
        text += "$ ward \(arguments.map(Self.quoted).joined(separator: " "))\n"
        text += done.output + done.errors
        text += done.status == 0 ? "" : "[exit \(done.status)]\n"
        #expect(
            done.status == expected,
            "`ward \(arguments.joined(separator: " "))`: \(done.everything)",
            sourceLocation: sourceLocation)
        if expected != 0 {
            let lines = done.errors.split(separator: "\n")
            #expect(
                lines.count >= 2 && lines[0].hasPrefix("ward: error: ")
                    && lines.dropFirst().contains { $0.hasPrefix("ward: hint: ") },
                "fact and advice: \(done.everything)", sourceLocation: sourceLocation)
            #expect(
                done.output.isEmpty, "on stdout: \(done.output)", sourceLocation: sourceLocation)
        }
        return done
    }

    /// Adds a line between the commands that says what happened.
    mutating func remark(_ line: String) { text += "# \(line)\n" }

    /// Compares the transcript with the expected one.
    func check(_ name: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let path = Self.directory + name + ".expected"
        let normal = normalised(text)
        if ProcessInfo.processInfo.environment["WARD_ACCEPT_TRANSCRIPTS"] == "1" {
            try normal.write(toFile: path, atomically: true, encoding: .utf8)
            return
        }
        let expected = (try? String(contentsOfFile: path, encoding: .utf8)) ?? "(no such file)"
        #expect(
            normal == expected,
            """
            \(name).expected differs; WARD_ACCEPT_TRANSCRIPTS=1 accepts this:
            \(normal)
            """, sourceLocation: sourceLocation)
    }

    /// The text with paths, identifiers, times and process numbers replaced, so that it is the same
    /// for every run and user.
    private func normalised(_ text: String) -> String {
        var text = text.replacingOccurrences(of: volume.directory, with: "/DIR")
            .replacingOccurrences(of: TestEnvironment.shared.base, with: "/BASE")
        let hex = "[0-9a-f]"
        for (pattern, replacement) in [
            ("/BASE/volume-[A-Za-z0-9]{6}/", "/OTHER/"),
            ("\(hex){8}-\(hex){4}-\(hex){4}-\(hex){4}-\(hex){12}", "UUID"), ("\(hex){32}", "UUID"),
            (#"(process|pid|uid) \d+"#, "$1 N"),
            (#"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"#, "TIME"),
            (#"\d\d:\d\d:\d\d(\.\d+)?"#, "TIME"),
        ] {
            text = text.replacingOccurrences(
                of: pattern, with: replacement, options: .regularExpression)
        }
        return text
    }

    private static func quoted(_ argument: String) -> String {
        argument.contains(" ") || argument.isEmpty ? "'\(argument)'" : argument
    }

    private static let directory =
        String(#filePath.dropLast("Support/Transcript.swift".count)) + "Transcripts/"
}
