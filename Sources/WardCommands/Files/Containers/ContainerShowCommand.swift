import ArgumentParser
import WardConsole
import WardContainers
import WardControl

struct ContainerShowCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show one container.",
        discussion: """
            Examples:
              ward container show ~/papers org.example.diary
              cd "$(ward container show ~/papers org.example.diary --json | jq -r .path)"
            """)

    @OptionGroup var target: ContainerTarget
    @OptionGroup var options: ReportOptions

    private static let what = "cannot show the container"

    func run() throws {
        let console = options.console
        let id = try target.id(ContainerShowCommand.what)
        let containers = try target.containers(ContainerShowCommand.what)
        let listing: VolumeContainers.Listing
        let defaultClass: String
        do throws(ContainerError) {
            listing = try containers.list()
            defaultClass = try containers.defaultClass()
            _ = try listing.required(id)
        } catch {
            throw ContainerTarget.failure(ContainerShowCommand.what, error, in: containers.root)
        }
        guard let container = listing.container(id) else { return }
        let usage = ContainerUsage(of: container.path)
        if console.isJSON {
            console.json(ContainerText.json(container, usage, listing))
            return
        }
        for (name, value) in fields(container, usage, listing) {
            console.result(Text.padded(name + ":", 20) + value)
        }
        let wanted = container.record.entitlement ?? defaultClass
        if container.kind != .group, wanted != container.protectionClass {
            console.note(ContainerText.difference(wanted, container))
        }
    }

    private func fields(
        _ container: VolumeContainers.Container, _ usage: ContainerUsage,
        _ listing: VolumeContainers.Listing
    ) -> [(String, String)] {
        let record = container.record
        func names(_ ids: [ContainerID]) -> String {
            ids.isEmpty ? "none" : ids.map(\.text).joined(separator: ", ")
        }
        var fields = [
            ("ID", record.id.text), ("kind", record.kind.rawValue),
            ("path", Text.printable(container.path)),
            ("made", "\(record.created), class \(ContainerText.letter(record.classAtCreation))"),
            ("class now", ContainerText.letter(container.protectionClass)),
        ]
        if record.kind == .group {
            fields.append(("shared by", names(listing.users(of: record.id).map(\.id))))
        } else {
            fields.append(
                ("entitlement now", record.entitlement.map(ContainerText.letter) ?? "none"))
            fields.append(("groups", names(record.groups)))
            if !record.backgroundModes.isEmpty {
                fields.append(("background modes", record.backgroundModes.joined(separator: ", ")))
            }
        }
        fields.append(("team", record.team ?? "none"))
        fields.append(("files", ContainerText.usage(usage)))
        return fields
    }
}
