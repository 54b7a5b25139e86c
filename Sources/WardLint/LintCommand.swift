import ArgumentParser
import WardConsole
import WardControl
import WardSystem

/// The root of the program `ward-lint`.
package struct LintCommand: ParsableCommand {
    package static let configuration = LintOptions.configuration(
        commandName: "ward-lint", version: WardVersion.current)

    @OptionGroup var options: LintOptions

    package init() {}

    package func run() throws {
        let console = options.report.console
        let package: LintedPackage
        do throws(Errno) {
            package = try LintedPackage(at: options.path)
        } catch {
            throw CommandFailure("cannot check", options.path, errno: error)
        }
        let reports = package.reports
        for report in reports {
            for finding in report.findings {
                if console.isJSON {
                    console.json(finding.json(path: report.path))
                } else {
                    console.result(finding.line(path: report.path, console.output))
                }
            }
        }
        for (path, error) in package.unreadable {
            console.failure(CommandFailure("cannot check", path, errno: error))
        }
        console.note(LintText.summary(package, reports))
        if !reports.isEmpty || !package.unreadable.isEmpty {
            throw ExitCode(ExitStatus.someFailed.rawValue)
        }
    }
}

enum LintText {
    /// "3 findings in 2 of 40 files".
    static func summary(_ package: LintedPackage, _ reports: [LintedPackage.Report]) -> String {
        if package.files.isEmpty { return "there is no Swift file here" }
        let files = Text.count(package.files.count, "file")
        guard !reports.isEmpty else {
            return package.isAdopting
                ? "nothing found in \(files)"
                : "nothing found in \(files); none imports \(LintRules.library)"
        }
        let findings = Text.count(reports.reduce(0) { $0 + $1.findings.count }, "finding")
        return "\(findings) in \(Text.grouped(reports.count)) of \(files)"
    }
}

extension LintFinding {
    /// The format of compiler messages, so that editors can jump to the place.
    func line(path: String, _ style: Style) -> String {
        "\(Text.printable(path)):\(line):\(column): \(style.yellow("warning:")) "
            + "\(Text.printable(message)); \(hint) [\(rule.rawValue)]"
    }

    func json(path: String) -> JSONValue {
        .object(present: [
            ("path", .string(path)), ("line", .int(Int64(line))), ("column", .int(Int64(column))),
            ("rule", .string(rule.rawValue)), ("name", .string(name)),
            ("message", .string(message)), ("hint", .string(hint)),
        ])
    }
}
