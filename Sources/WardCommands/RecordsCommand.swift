import ArgumentParser
import Glibc
import WardControl
import WardSystem

/// Started by `ward lock`, never by a person: prints the records of this user's daemons. In a
/// process of its own, because the runtime directory may lie on a file system that never answers.
struct RecordsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "records", abstract: "List the records of mounted volumes.",
        shouldDisplay: false)

    private static let patience = Duration.seconds(3)

    func run() {
        let records = RuntimeDirectory().mounted().map(\.json)
        Console.write(JSONValue.object([("records", .array(records))]).text() + "\n", to: 1)
    }

    /// The records as such a process reads them; nil where it has not answered in three seconds.
    static func ask() -> [MountedVolume]? {
        let answer = try? AskingProcess(["records"])
            .answer(until: SystemClock.monotonic() + patience)
        return answer?["records"]?.arrayValue?.compactMap(MountedVolume.init(json:))
    }
}
