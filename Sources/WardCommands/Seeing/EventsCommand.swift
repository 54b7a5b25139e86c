import ArgumentParser
import WardConsole
import WardControl
import WardSystem

struct EventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Show what happened to a mounted volume.",
        discussion: """
            Locks and unlocks and how long they took, refused reads and writes (which program, which \
            file, which class, in which state), integrity failures, losses. The daemon remembers the \
            latest, whether anybody listens or not; the same refusal again is one event with a \
            count. --follow shows new ones until the mount ends; a refusal that goes on is shown \
            again there, with its count.

            --signals adds an event for each class that becomes readable or ceases to be, and --class \
            leaves what concerns one class.

            Examples:
              ward events
              ward events ~/papers --last 5
              ward events --follow --json | jq -r 'select(.kind == "denied") | .program + " " + .path'
              ward events --follow --signals --class A
            """)

    @OptionGroup var target: MountPointArgument
    @Flag(name: .shortAndLong, help: "Go on with each event as it happens.") var follow = false
    @Option(help: "How many of the latest events to begin with (default: 20, with --follow 0).")
    var last: Int?
    @Flag(help: "With --follow: each class's signals, too.") var signals = false
    @Option(name: .customLong("class"), help: "Only what concerns this class.")
    var protectionClass: ClassArgument?
    @OptionGroup var options: ReportOptions

    func validate() throws {
        if let last, last < 0 { throw ValidationError("--last is a number of events") }
        if signals && !follow { throw ValidationError("--signals goes with --follow") }
    }

    func run() throws {
        let console = options.console
        let connection = try target.connect("cannot show the events of")
        try connection.call { client throws(ControlError) in
            try client.monitor(
                last: last ?? (follow ? 0 : 20), follow: follow, signals: signals,
                protectionClass: protectionClass?.value.letter
            ) { notice in
                guard case .event(let event) = notice else { return true }
                if console.isJSON {
                    console.json(event.json)
                } else {
                    console.result(EventText.render(event, console.output))
                }
                return true
            }
        }
    }
}
