import ArgumentParser
import WardConsole
import WardContainers
import WardControl
import WardSystem

struct ContainerRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Remove a container, and the groups that go with it.",
        discussion: """
            Says what goes, and asks. A group container goes with the last app that names it; one that \
            nothing names can be removed by its own ID. Works in every lock state: what can't be read \
            can be removed.

            Examples:
              ward container remove ~/papers org.example.diary
              ward container remove ~/papers org.example.diary --yes
            """,
        aliases: ["rm"])

    @OptionGroup var target: ContainerTarget
    @Flag(name: .shortAndLong, help: "Without asking.") var yes = false
    @OptionGroup var options: ReportOptions

    private static let what = "cannot remove the container"

    func run() throws {
        let console = options.console
        let id = try target.id(ContainerRemoveCommand.what)
        let containers = try target.containers(ContainerRemoveCommand.what)
        do {
            let planned = try containers.removal(of: id)
            let listing = try containers.list()
            let usage = ([planned.container] + planned.groups).map {
                ($0, ContainerUsage(of: $0.path))
            }
            if yes {
                if !console.isJSON { announce(planned, usage, listing, console) }
            } else {
                // The user must see what the question is about, even when quiet or in JSON.
                announce(planned, usage, listing, Console())
                try confirm(id, console)
            }
            let removal = try containers.remove(id, announced: yes ? nil : planned)
            report(removal, usage, console)
        } catch let error as ContainerError {
            throw ContainerTarget.failure(ContainerRemoveCommand.what, error, in: containers.root)
        }
    }

    private func announce(
        _ removal: VolumeContainers.Removal,
        _ usage: [(VolumeContainers.Container, ContainerUsage)],
        _ listing: VolumeContainers.Listing, _ console: Console
    ) {
        for (container, usage) in usage {
            let isAlong = container.id != removal.container.id
            let with = isAlong ? " with it, as nothing else names it" : ""
            console.note(
                "\(container.kind.rawValue) \(container.id) goes\(with): "
                    + ContainerText.usage(usage))
        }
        for group in removal.keptGroups {
            let others = listing.users(of: group.id).map(\.id.text)
                .filter { $0 != removal.container.id.text }
            console.note("group \(group.id) stays: \(others.joined(separator: ", ")) names it, too")
        }
        let prefix = removal.container.id.text + "."
        for container in listing.containers
        where container.kind == .extension && container.id.text.hasPrefix(prefix) {
            console.note("its extension \(container.id) stays, with a container of its own")
        }
    }

    private func confirm(_ id: ContainerID, _ console: Console) throws(CommandFailure) {
        func refusal(_ why: String) -> CommandFailure {
            CommandFailure(
                ContainerRemoveCommand.what, id.text, why: why,
                hint: "--yes removes it without asking", status: .usage)
        }
        guard console.mayAsk else { throw refusal("--no-input forbids asking") }
        let answer: String?
        do throws(Errno) {
            answer = try TerminalPrompt().readLine("Remove it? [y/N] ")
        } catch {
            if error == .noSuchAddressOrDevice || error == .noSuchFileOrDirectory {
                throw refusal("there is no terminal to ask on")
            }
            throw CommandFailure(ContainerRemoveCommand.what, id.text, errno: error)
        }
        guard ["y", "yes"].contains(answer?.lowercased()) else {
            throw refusal("it was not confirmed, nothing changed")
        }
    }

    private func report(
        _ removal: VolumeContainers.Removal,
        _ usage: [(VolumeContainers.Container, ContainerUsage)], _ console: Console
    ) {
        if console.isJSON {
            let gone = ([removal.container] + removal.groups).map { container in
                let files = usage.first { $0.0.path == container.path }?.1.count
                return JSONValue.object(present: [
                    ("id", .string(container.id.text)), ("kind", .string(container.kind.rawValue)),
                    ("files", files.map { .int(Int64($0)) }),
                ])
            }
            console.json(
                .object([
                    ("removed", .array(gone)),
                    ("kept", .array(removal.keptGroups.map { .string($0.id.text) })),
                ]))
        } else {
            let names = ([removal.container] + removal.groups).map(\.id.text)
            console.confirm("\(names.joined(separator: ", ")): removed")
        }
    }
}
