import ArgumentParser
import WardConsole
import WardControl

struct TrustCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "trust", abstract: "Let a trusted host read while the screen is locked.",
        discussion: """
            A trusted host has a secret that keeps classes A and B open while it is connected, however \
            the volume is locked: for a backup, or for working from another machine. It works only \
            after the first unlock and only with this device, and expires when it was not used for 30 \
            days. While it is connected every program on this device can read what the host can.

            Examples:
              ward trust add ~/papers laptop --out laptop.trust
              ward trust connect ~/papers --trust-file laptop.trust
              ssh device ward trust connect papers --trust-fd 0 <laptop.trust
              ward trust list ~/papers
              ward trust remove ~/papers laptop
            """,
        subcommands: [
            TrustAddCommand.self, TrustConnectCommand.self, TrustListCommand.self,
            TrustRemoveCommand.self,
        ])
}

/// Text about trusted hosts.
enum TrustText {
    static func noteRemoved(_ names: [String], _ console: Console) {
        guard !names.isEmpty else { return }
        let list = names.map { Text.printable($0) }.joined(separator: ", ")
        console.note(
            "no host is trusted any more (until now \(list)): ward trust add trusts one again")
    }

    /// A heading and one line for each host; empty without hosts.
    static func lines(_ hosts: [HostStatus], _ style: Style) -> [String] {
        guard !hosts.isEmpty else { return [] }
        let width = max(4, hosts.map { Text.printable($0.name).count }.max() ?? 0)
        let head = Text.padded("name", width) + "  made        last used   expires     connected"
        return [style.dim(head)]
            + hosts.map { host in
                var line = Text.padded(Text.printable(host.name), width)
                line += "  \(day(host.made))  \(day(host.lastUsed))  "
                line += host.expired ? style.red(Text.padded("expired", 10)) : day(host.expires)
                switch host.connected {
                case 0: line += "  no"
                case 1: line += "  " + style.yellow("yes")
                default: line += "  " + style.yellow("\(host.connected) times")
                }
                return line
            }
    }

    /// The day of an RFC 3339 time.
    private static func day(_ time: String) -> String { String(time.prefix(10)) }
}
