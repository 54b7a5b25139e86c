import ArgumentParser
import WardConsole
import WardControl
import WardSystem

struct HoldersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "holders", abstract: "Show which programs have files of a volume open.",
        discussion: """
            Descriptors, mappings, and working and root directories, class A first. It is information, \
            not a veto: a lock takes the files away all the same. What belongs to other users only \
            root sees; what could not be looked at is counted on stderr.

            Examples:
              ward holders
              ward holders ~/papers --class A
              ward holders --json | jq -r 'select(.protectionClass == "A") | .pid'
            """)

    @OptionGroup var target: MountPointArgument
    @Option(name: .customLong("class"), help: "Only files of this class.")
    var protectionClass: ClassArgument?
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot show the holders of")
        let report = try connection.call { client throws(ControlError) in
            try client.holders(protectionClass: protectionClass?.value.letter)
        }
        for line in HolderText.lines(report, console) { console.result(line) }
        for note in HolderText.notes(report) { console.note(note) }
    }
}

/// Text for the list of holders.
enum HolderText {
    static func lines(_ report: HolderReport, _ console: Console) -> [String] {
        if console.isJSON { return report.holders.map { $0.json.text() } }
        if report.holders.isEmpty { return [] }
        let style = console.output
        let programs = report.holders.map { Text.printable($0.program) }
        let width = max(7, programs.map(\.count).max() ?? 0)
        let uses = report.holders.map { use($0.use) }
        let useWidth = max(3, uses.map(\.count).max() ?? 0)
        let head =
            "class      pid  \(Text.padded("program", width))  \(Text.padded("use", useWidth))"
        return [style.dim(head + "  path")]
            + report.holders.enumerated().map { index, holder in
                let letter = Text.padded(holder.protectionClass ?? "-", 5)
                return (holder.protectionClass == "A" ? style.red(letter) : letter)
                    + Text.paddedLeft("\(holder.pid)", 9) + "  "
                    + Text.padded(programs[index], width) + "  "
                    + Text.padded(uses[index], useWidth) + "  " + Text.printable(holder.path)
            }
    }

    /// Notes about holders that the lines do not show.
    static func notes(_ report: HolderReport) -> [String] {
        var notes: [String] = []
        if report.leftOut > 0 { notes.append("\(Text.grouped(report.leftOut)) more were left out") }
        if report.unattributed > 0 {
            let belong = report.unattributed == 1 ? "belongs" : "belong"
            notes.append(
                "\(Text.count(report.unattributed, "open file")) \(belong) to no process that was seen"
            )
        }
        if report.unreadable > 0 {
            notes.append("\(Text.count(report.unreadable, "process")) could not be looked at")
        }
        if !report.isComplete { notes.append("not everything could be looked at in time") }
        return notes
    }

    /// The words for a use, such as "mapped for writing".
    static func use(_ name: String) -> String {
        switch Holder.Use(rawValue: name) {
        case .readWrite: "read, write"
        case .path: "name only"
        case .mappedForWriting: "mapped for writing"
        case .workingDirectory: "working directory"
        case .rootDirectory: "root directory"
        case .read, .write, .mapped: name
        case nil: Text.printable(name)
        }
    }
}
