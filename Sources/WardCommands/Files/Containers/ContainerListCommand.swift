import ArgumentParser
import WardConsole
import WardContainers
import WardControl

struct ContainerListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List the containers of a volume.",
        discussion: """
            Columns: the class it was made with; that of its app's entitlement now (- without one); \
            files, their size and their classes; its groups, or the apps that share a group. Works in \
            every lock state.

            What lies among the containers and is none (a copy, what a crash left) is told on stderr, \
            with --json on stdout.

            Examples:
              ward container list ~/papers
              ward container list ~/papers --json | jq -r 'select(.class != .entitlement) | .id'
            """,
        aliases: ["ls"])

    @Argument(help: "The mount point, or any path in it.", completion: .directory)
    var mountpoint: String
    @OptionGroup var options: ReportOptions

    private static let what = "cannot list the containers of"

    func run() throws {
        let console = options.console
        let containers = try ContainerTarget.containers(mountpoint, ContainerListCommand.what)
        let listing: VolumeContainers.Listing
        do throws(ContainerError) {
            listing = try containers.list()
        } catch {
            throw ContainerTarget.failure(ContainerListCommand.what, error, in: containers.root)
        }
        if console.isJSON {
            for container in listing.containers {
                console.json(
                    ContainerText.json(container, ContainerUsage(of: container.path), listing))
            }
            for oddity in listing.oddities { console.json(ContainerText.json(oddity)) }
            return
        }
        show(listing, console)
        for oddity in listing.oddities { console.note(ContainerText.oddity(oddity)) }
    }

    private func show(_ listing: VolumeContainers.Listing, _ console: Console) {
        guard !listing.containers.isEmpty else {
            console.confirm("no containers")
            return
        }
        let rows =
            [["ID", "KIND", "MADE", "ENTITLED", "FILES", "GROUPS, OR SHARED BY"]]
            + listing.containers.map { row($0, listing) }
        let widths = rows[0].indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        for row in rows {
            var line = zip(row, widths).map { Text.padded($0, $1) }.joined(separator: "  ")
            while line.hasSuffix(" ") { line.removeLast() }
            console.result(line)
        }
    }

    private func row(
        _ container: VolumeContainers.Container, _ listing: VolumeContainers.Listing
    ) -> [String] {
        let record = container.record
        let others = record.kind == .group ? listing.users(of: record.id).map(\.id) : record.groups
        return [
            record.id.text, record.kind.rawValue, ContainerText.letter(record.classAtCreation),
            record.entitlement.map(ContainerText.letter) ?? "-",
            ContainerText.usage(ContainerUsage(of: container.path)),
            others.map(\.text).joined(separator: ", "),
        ]
    }
}
