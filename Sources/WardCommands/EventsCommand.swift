import ArgumentParser
import WardControl
import WardSystem

struct EventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Show what happened to a mounted volume.",
        discussion: """
            Locks and unlocks, refused reads and writes (who, which file, which class), integrity \
            failures, losses. The daemon remembers the latest; --follow shows new ones until the \
            mount ends.

            Examples:
              ward events
              ward events ~/papers --last 5
              ward events --follow --json | jq -r 'select(.kind == "denied") | .path'
            """)

    @OptionGroup var target: MountPointArgument
    @Flag(name: .shortAndLong, help: "Go on with each event as it happens.") var follow = false
    @Option(help: "How many of the latest events to begin with (default: 20, with --follow 0).")
    var last: Int?
    @OptionGroup var options: ReportOptions

    func validate() throws {
        if let last, last < 0 { throw ValidationError("--last is a number of events") }
    }

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot show the events of")
        let count = last ?? (follow ? 0 : 20)
        if count == 0 && !follow { return }
        // The latest come in one go: a moment of silence is their end.
        let idle: Duration? = follow ? nil : .milliseconds(300)
        try connection.call { client throws(ControlError) in
            var shown = 0
            try client.monitor(last: count, idle: idle) { event in
                if console.isJSON {
                    console.json(event.json)
                } else {
                    console.result(EventsCommand.render(event, console.output))
                }
                shown += 1
                return follow || shown < count
            }
        }
    }

    static func render(_ event: ControlEvent, _ style: Style) -> String {
        let kind = Text.padded(event.kind, 21)
        var line = style.dim(event.time) + "  "
        switch event.kind {
        case "denied", "integrityFailure", "lost": line += style.red(kind)
        case "willBecomeUnavailable", "locked", "reboot": line += style.yellow(kind)
        case "didBecomeAvailable", "firstUnlock": line += style.green(kind)
        default: line += kind
        }
        var details: [String] = []
        if let path = event.path { details.append(Text.printable(path)) }
        if let letter = event.protectionClass { details.append("class \(letter)") }
        if let operation = event.operation { details.append(Text.printable(operation)) }
        if let pid = event.pid { details.append("pid \(pid)") }
        if let uid = event.uid { details.append("uid \(uid)") }
        if let seconds = event.secondsLeft {
            details.append("in \(Text.duration(seconds: seconds))")
        }
        if let detail = event.detail { details.append(Text.printable(detail)) }
        if details.isEmpty, let state = event.state { details.append(StateText.name(state)) }
        return line + "  " + details.joined(separator: ", ")
    }
}
