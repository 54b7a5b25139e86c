import WardConsole
import WardControl
import WardFormat
import WardSimulation

/// The final report of `ward test`.
struct TestReport {
    /// The number of refusals shown one by one; the rest is only counted.
    private static let shownDenials = 10

    let audit: Audit
    /// The findings that count; below, those that were allowed.
    let findings: [Finding]
    let allowed: [Finding]
    let forbidsDenials: Bool

    init(audit: Audit, allowed: Set<Finding.Kind>, forbidsDenials: Bool) {
        self.audit = audit
        self.forbidsDenials = forbidsDenials
        findings = audit.findings.filter { !allowed.contains($0.kind) }
        self.allowed = audit.findings.filter { allowed.contains($0.kind) }
    }

    var isClean: Bool { findings.isEmpty && !(forbidsDenials && !audit.denials.isEmpty) }

    /// Prints to stderr, because stdout belongs to the command. As JSON it is the last line of
    /// stdout.
    func show(_ command: [String], _ code: Int32, _ console: Console) {
        if console.isJSON {
            console.json(json(command, code))
        } else {
            for line in lines(console.notes, isQuiet: console.isQuiet) {
                Console.write(line + "\n", to: 2)
            }
        }
    }

    private func json(_ command: [String], _ code: Int32) -> JSONValue {
        guard case .object(var members) = audit.json else { return .null }
        members.insert(("command", .array(command.map { .string($0) })), at: 0)
        members.insert(("exitCode", .int(Int64(code))), at: 1)
        members.insert(("clean", .bool(isClean)), at: 2)
        return .object(members)
    }

    private func lines(_ style: Style, isQuiet: Bool) -> [String] {
        var lines: [String] = []
        if !isQuiet {
            lines.append("ward: audit: \(counts)")
            if !audit.unread.isEmpty {
                lines.append(
                    "ward: audit: \(Text.count(audit.unread.count, "file")) could not be read, and "
                        + "so not compared")
            }
        }
        if !isQuiet || forbidsDenials {
            let word = forbidsDenials ? style.red("ward: finding: denial:") : "ward: audit: denial:"
            for denial in audit.denials.prefix(TestReport.shownDenials) {
                lines.append("\(word) \(Text.printable(denial.description))")
            }
            let rest = audit.denials.count - TestReport.shownDenials
            if rest > 0 { lines.append("\(word) and \(rest) more") }
        }
        for finding in findings {
            lines.append(
                style.red("ward: finding:")
                    + " \(finding.kind.rawValue): \(Text.printable(finding.description))")
        }
        if !isQuiet {
            for finding in allowed {
                lines.append(
                    "ward: audit: allowed: \(finding.kind.rawValue): "
                        + Text.printable(finding.description))
            }
        }
        return lines
    }

    /// "3 files: 2 of class A, 1 of class C".
    private var counts: String {
        let classes = ProtectionClass.allCases.compactMap { protectionClass -> String? in
            let count = audit.files(of: protectionClass).count
            return count == 0 ? nil : "\(Text.grouped(count)) of class \(protectionClass.letter)"
        }
        let total = Text.count(audit.files.count, "file")
        return classes.isEmpty ? total : "\(total): \(classes.joined(separator: ", "))"
    }
}
