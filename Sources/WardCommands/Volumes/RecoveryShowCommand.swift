import ArgumentParser
import WardConsole
import WardControl
import WardFormat
import WardKeys
import WardSystem

struct RecoveryShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show which volume a recovery kit is of.",
        discussion: """
            Tells what the file says without its code: the volume's UUID, when the kit was made, \
            and in which format. Nothing of it is secret, and nothing of it is checked: verify does \
            that.

            Examples:
              ward recovery show /media/usb/papers.kit
              ward recovery show /media/usb/papers.kit --json | jq -r .uuid
            """)

    @Argument(help: "The recovery kit.", completion: .file()) var kit: String
    @OptionGroup var options: ReportOptions

    func run() throws {
        let console = options.console
        let file = try ExistingRecoveryKit(kit, "cannot show the recovery kit")
        let parameters = file.kit.identity.parameters
        let history = KeybagStore.recoveryHistory(
            volumeUUID: parameters.uuid, stateRoot: StateDirectory.defaultRoot())
        let mounted = RuntimeDirectory().mounted().first { $0.uuid == parameters.uuidString }
        if console.isJSON {
            return console.json(
                .object(present: [
                    ("recoveryKit", .string(file.path)), ("uuid", .string(file.uuid)),
                    ("made", .string(Timestamp.text(.seconds(file.kit.created)))),
                    ("format", .int(Int64(file.kit.format.rawValue))),
                    ("pageSize", .int(Int64(parameters.pageBytes))),
                    ("knownHere", .bool(history != nil)),
                    ("volume", mounted.map { .string($0.volume) }),
                    ("verified", history?.verified.map { .string(Timestamp.text($0)) }),
                ]))
        }
        var rows = [
            ("kit", Text.printable(file.path)), ("volume", file.uuid), ("made", file.made),
            ("format", String(file.kit.format.rawValue)),
        ]
        if let mounted { rows.append(("at", Text.printable(mounted.volume))) }
        rows.append(
            (
                "device",
                history == nil
                    ? "this device has no keys of the volume" : "this device has keys of the volume"
            ))
        for (name, value) in rows { console.result(Text.padded(name, 8) + value) }
    }
}
