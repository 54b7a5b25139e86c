import ArgumentParser
import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardSystem

struct TrustConnectCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect", abstract: "Keep a volume open for a trusted host.",
        discussion: """
            Stays in the foreground. While it runs classes A and B stay open, however the volume is \
            locked; when it ends they close at once if the volume is locked then. Not before the first \
            unlock.

            It ends with a signal, when nobody reads its stdout any more (the ssh that started it is \
            gone), when a descriptor named with --watch-fd ends, and when the device ends it. A network \
            that stops tells nobody: --heartbeat asks the host ten times a second, by a line on stdout \
            that has to come back on stdin; cat is answer enough:

              mkfifo answers
              (cat laptop.trust; cat answers) |
                ssh device ward trust connect papers --trust-fd 0 --heartbeat >answers

            Examples:
              ward trust connect ~/papers --trust-file laptop.trust
              ssh device ward trust connect papers --trust-fd 0 <laptop.trust
            """)

    @Argument(help: "The mount point, or any path in it.", completion: .directory)
    var mountpoint: String
    @Option(help: "Read the host's record from this file.", completion: .file())
    var trustFile: String?
    @Option(help: "Read the host's record from this descriptor; nothing after it is read.")
    var trustFd: Int32?
    @Flag(help: "Have the host answer, and end when it does not.") var heartbeat = false
    @Option(help: "How long an answer to a heartbeat may take: 700ms.")
    var patience = DurationArgument(argument: "700ms")!
    @Option(help: "End when this descriptor ends, too.") var watchFd: [Int32] = []
    @OptionGroup var options: ReportOptions

    func validate() throws {
        if (trustFile == nil) == (trustFd == nil) {
            throw ValidationError("name --trust-file FILE or --trust-fd N")
        }
        if heartbeat, patience.seconds < 0.1 {
            throw ValidationError("--patience is at least 100ms")
        }
        if heartbeat, options.json {
            throw ValidationError("--json and --heartbeat exclude each other")
        }
    }

    func run() throws {
        let what = "cannot keep open for a trusted host"
        let connection = try VolumeConnection(what, path: mountpoint)
        let status = try connection.status()
        let notice = try present(connection, status)
        let console = options.console
        let place = Text.printable(status.mountpoint)
        if case .ended(let reason) = notice { throw ended(reason, what) }
        guard case .connected(let name, let state) = notice else { return }
        if console.isJSON {
            console.json(
                .object([
                    ("name", .string(name)), ("state", .string(state)),
                    ("mountpoint", .string(status.mountpoint)),
                ]))
        } else if heartbeat {
            console.note("\(place): A and B stay open for \(Text.printable(name))")
        } else {
            console.confirm("\(place): A and B stay open for \(Text.printable(name))")
        }
        let watch = HostWatch(
            client: connection.client, watched: watchFd,
            heartbeat: heartbeat ? .seconds(patience.seconds) : nil)
        switch watch.run() {
        case .hostIsGone(let why):
            // Closing the connection locks the volume; it must not wait for the output.
            connection.client.hangUp()
            console.note("\(place): \(why)")
        case .endedByDevice(let reason): throw ended(reason, what)
        case .lost(let error): throw CommandFailure(what, mountpoint, error)
        }
    }

    /// Presents the record. The secret is in memory only until the daemon has answered.
    private func present(
        _ connection: VolumeConnection, _ status: VolumeStatus
    ) throws(CommandFailure) -> ControlClient.HostNotice {
        let record = try HostRecordFile.read(
            file: trustFile, descriptor: trustFd, for: status)
        return try connection.call { client throws(ControlError) in
            try client.trustConnect(hostID: record.hostID, secret: record.secret)
        }
    }

    private func ended(_ reason: String, _ what: String) -> CommandFailure {
        CommandFailure(
            what, mountpoint, why: "the device ended it: \(reason)",
            hint: "ward trust list \(Text.shellQuoted(mountpoint)), on the device", status: .locked)
    }
}
