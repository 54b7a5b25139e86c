import ArgumentParser
import WardConsole
import WardControl
import WardDaemon
import WardKeys
import WardSystem
import WardTrustedHosts

struct TrustListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show the hosts that are trusted.",
        discussion: """
            When each was trusted, used last, and expires unless it is used before; and whether it is \
            connected now. Times are this device's, which never run backwards.

            Examples:
              ward trust list ~/papers
              ward trust list ~/papers --json | jq -r 'select(.connected > 0) | .name'
            """)

    @OptionGroup var target: PasscodeTargetArgument
    @OptionGroup var options: ReportOptions

    func run() throws {
        let what = "cannot show the trusted hosts of"
        var hosts: [HostStatus] = []
        switch try target.find(what) {
        case .mounted(let connection):
            hosts = try connection.call { client throws(ControlError) in try client.trustList() }
        case .unmounted(let path):
            let store = try VolumeDirectory.open(path, what)
            let now = TrustTime.now(store)
            hosts = store.trustedHosts(at: now).map { HostStatus($0, connected: 0) }
        }
        let console = options.console
        if console.isJSON {
            for host in hosts { console.json(host.json) }
        } else if hosts.isEmpty {
            console.note("no host is trusted (ward trust add)")
        } else {
            for line in TrustText.lines(hosts, console.output) { console.result(line) }
        }
    }
}

/// The current time of a volume that is not mounted.
enum TrustTime {
    static func now(_ store: KeybagStore) -> UInt64 {
        let wall = SteadyTime.wallClock()
        var time = SteadyTime(
            wall: wall, latest: store.latestTime, sinceBoot: SystemClock.sinceBoot())
        return time.now(wall: wall, sinceBoot: SystemClock.sinceBoot())
    }
}
