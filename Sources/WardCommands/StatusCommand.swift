import ArgumentParser
import WardControl
import WardSystem

struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the lock state of a mounted volume.",
        discussion: """
            Without a mount point every mounted volume is shown. With --json each is one line.

            Examples:
              ward status
              ward status ~/papers
              ward status --json | jq -r .state
            """)

    @OptionGroup var target: MountPointArgument
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let paths: [String]
        if let mountpoint = target.mountpoint {
            paths = [mountpoint]
        } else {
            paths = RuntimeDirectory().mounted().map(\.mountpoint)
        }
        if paths.isEmpty {
            throw CommandFailure(
                "cannot show a state", why: "no volume is mounted",
                hint: "ward mount VOLUME MOUNTPOINT", status: .unavailable)
        }
        for (index, path) in paths.enumerated() {
            let status = try VolumeConnection("cannot show the state of", path: path).status()
            if console.isJSON {
                console.json(status.json)
            } else {
                if index > 0 { console.result("") }
                console.result(StatusCommand.render(status, console.output))
            }
        }
    }

    static func render(_ status: VolumeStatus, _ style: Style) -> String {
        var lines: [String] = []
        var heading = style.bold(Text.printable(status.mountpoint)) + "  "
        heading += StateText.coloured(status.state, style)
        if let remaining = status.graceRemainingSeconds {
            heading += ", protected files close in \(Text.duration(seconds: remaining))"
        }
        lines.append(heading)
        lines.append("  volume     \(Text.printable(status.volume))")
        lines.append("  uuid       \(status.uuid)")
        lines.append("  since      \(status.since)")
        lines.append("  passcode   \(status.passcodeSet ? "set" : "not set")")
        lines.append("  grace      \(Text.duration(seconds: status.graceSeconds))")
        lines.append("  daemon     pid \(status.pid), version \(status.version)")
        if status.readOnly { lines.append("  read-only  yes") }
        if status.manualClock { lines.append("  clock      manual (ward advance)") }
        let width = status.classes.map(\.name.count).max() ?? 0
        lines.append(style.dim("  class  \(Text.padded("", width))  readable  open files"))
        for entry in status.classes {
            let readable = Text.padded(entry.available ? "yes" : "no", 8)
            lines.append(
                "  \(Text.padded(entry.letter, 5))  \(Text.padded(entry.name, width))  "
                    + (entry.available ? style.green(readable) : style.red(readable))
                    + "  \(Text.grouped(entry.openFiles))")
        }
        return lines.joined(separator: "\n")
    }
}
