import ArgumentParser
import Glibc
import WardContainers
import WardKeys
import WardSystem

struct ContainerRunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Run a program in a container.",
        usage: "ward container run <mountpoint> <id> [--sandbox] -- <command> ...",
        discussion: """
            The program's home directory is the container, its temporary and XDG directories lie in \
            it, and WARD_CONTAINER names it; the Swift library DataProtection answers from it. The exit \
            code is the program's own; 126 and 127 say that it can't be run, as with env.

            --sandbox lets the program see no file of this and other mounted volumes but its own \
            container and those of its groups, and none of ward's keys; the rest of the machine stays \
            as it is. Needs bubblewrap (bwrap). It is for programs that go where they should not by \
            mistake; a hostile one has other ways to its user's data.

            Examples:
              ward container run ~/papers org.example.diary -- diary --background
              ward container run ~/papers org.example.diary --sandbox -- bash
            """)

    @OptionGroup var target: ContainerTarget
    @Flag(help: "The program sees its own container and its groups, and no other.")
    var sandbox = false
    @OptionGroup var options: GeneralOptions
    @Argument(parsing: .postTerminator, help: "What to run, after --.") var command: [String] = []

    private static let what = "cannot run in the container"

    func validate() throws {
        guard !command.isEmpty else {
            throw ValidationError(
                "a command is expected after --, as in ward container run ~/papers ID -- diary")
        }
    }

    func run() throws {
        // From here on, so that none is lost before the program runs; it gets them all.
        let signals = sandbox ? ForwardedSignals() : nil
        let id = try target.id(ContainerRunCommand.what)
        let containers = try target.containers(ContainerRunCommand.what)
        let container: VolumeContainers.Container
        let groups: [String]
        do throws(ContainerError) {
            let listing = try containers.list()
            container = try listing.required(id)
            groups = listing.containers.filter {
                $0.kind == .group && container.record.groups.contains($0.id)
            }.map(\.path)
        } catch {
            throw ContainerTarget.failure(ContainerRunCommand.what, error, in: containers.root)
        }
        guard container.kind != .group else {
            throw CommandFailure(
                ContainerRunCommand.what, id.text, why: "it is a group's: no app's home",
                hint: "ward container list \(Text.shellQuoted(containers.root))", status: .usage)
        }
        // Programs clear their caches and temporary files, directories included, and expect them to be there.
        containers.restoreDirectories(of: container)
        // Before the environment is the container's.
        let view = Sandbox(
            container: container.path, groups: groups, mountPoint: containers.root,
            keys: StateDirectory.defaultRoot())
        for (name, value) in ContainerContext.environment(root: container.path) {
            setenv(name, value, 1)
        }
        guard let signals else { throw ExitCode(ProgramStart.replaceThisProcess(command)) }
        let code = try view.run(command, signals)
        throw ExitCode(code)
    }
}
