import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSystem

/// Internal command, started by `ward lock`: prints the records of this user's daemons. A separate
/// process, because the file system of the runtime directory may never answer.
struct RecordsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "records", abstract: "List the records of mounted volumes.",
        shouldDisplay: false)

    private static let patience = Duration.seconds(3)

    func run() {
        let records = RuntimeDirectory().mounted().map(\.json)
        Console.write(JSONValue.object([("records", .array(records))]).text() + "\n", to: 1)
    }

    /// Returns the records as a child process reads them; nil after three seconds without an
    /// answer.
    static func ask() -> [MountedVolume]? {
        let answer = try? AskingProcess(["records"])
            .answer(until: SystemClock.monotonic() + patience)
        return answer?["records"]?.arrayValue?.compactMap(MountedVolume.init(json:))
    }
}
