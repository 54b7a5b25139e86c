import ArgumentParser
import Glibc
import WardConsole
import WardContainers
import WardControl
import WardSystem

struct ContainerRunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Run a program in a container.",
        usage: """
            ward container run <mountpoint> <id> [--sandbox [--network] [--show <path>] ...] -- \
            <command> ...
            """,
        discussion: """
            The program's home directory is the container, its temporary and XDG directories lie in \
            it, and WARD_CONTAINER names it; the Swift library DataProtection answers from it. The exit \
            code is the program's own; 126 and 127 say that it can't be run, as with env.

            --sandbox shows the program its own container and those of its groups, the system's \
            programs to read (/usr, /opt, some of /etc), an empty /tmp and /run, and nothing else: no \
            other file of this or any volume or of its user's, no volume's directory, no keys, no \
            other process, no server. Of ward it gets the lock state and no more. Needs bubblewrap \
            (bwrap).

            --network opens the network, with it servers on this machine, and sockets that have no \
            path: a desktop's servers on those do what they are asked. --show PATH shows a file or a \
            directory to read, with the sockets in it; none that holds a volume, keys, or sockets of \
            ward.

            Examples:
              ward container run ~/papers org.example.diary -- diary --background
              ward container run ~/papers org.example.diary --sandbox -- bash
              ward container run ~/papers org.example.diary --sandbox --show ~/diary -- ~/diary/run
            """)

    @OptionGroup var target: ContainerTarget
    @Flag(help: "The program sees its container, its groups and the system, and nothing else.")
    var sandbox = false
    @Flag(help: "In a sandbox: the program has the network.") var network = false
    @Option(
        help:
            "In a sandbox: a file or directory that the program may read. More than one may be given.",
        completion: .file())
    var show: [String] = []
    @OptionGroup var options: GeneralOptions
    @Argument(parsing: .postTerminator, help: "What to run, after --.") var command: [String] = []

    private static let what = "cannot run in the container"

    func validate() throws {
        guard !command.isEmpty else {
            throw ValidationError(
                "a command is expected after --, as in ward container run ~/papers ID -- diary")
        }
        guard sandbox || !network && show.isEmpty else {
            throw ValidationError("--network and --show are for --sandbox")
        }
    }

    func run() throws {
        // Installed here, so that no signal is lost before the program runs; it gets all of them.
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
        // Programs delete their caches and temporary files, directories included, and expect the
        // directories later.
        containers.restoreDirectories(of: container)
        // Before the environment becomes the container's.
        let view = sandbox ? try view(container.path, groups, containers.root) : nil
        for (name, value) in ContainerContext.environment(root: container.path) {
            setenv(name, value, 1)
        }
        guard let view, let signals else {
            throw ExitCode(ProgramStart.replaceThisProcess(command))
        }
        // The sandbox may not have the current directory, so a relative path becomes an absolute
        // one.
        var command = command
        if command[0].contains("/"), let program = view.program { command[0] = program.path }
        let code = try Sandbox(view: view).run(command, signals)
        throw ExitCode(code)
    }

    private func view(
        _ container: String, _ groups: [String], _ mountPoint: String
    ) throws(CommandFailure) -> SandboxView {
        let endpoints: ControlEndpoints
        do throws(ControlError) {
            guard let mount = VolumeMount.covering(mountPoint) else {
                throw ControlError(
                    .notInMount, path: mountPoint, "not inside a mounted ward volume")
            }
            endpoints = try mount.endpoints()
        } catch {
            throw CommandFailure(Sandbox.what, mountPoint, error)
        }
        let socket = endpoints.control.socketPath
        guard let state = endpoints.state?.socketPath, access(state, F_OK) == 0 else {
            throw CommandFailure(
                Sandbox.what, mountPoint,
                why: "its daemon is gone, or older than this program: no socket tells the state",
                hint: "ward unmount \(Text.shellQuoted(mountPoint)), then mount it again",
                status: .unavailable)
        }
        var shown: [String] = []
        for path in show {
            let real: String
            do throws(Errno) {
                real = try Path.real(path)
            } catch {
                throw CommandFailure("cannot show", path, errno: error)
            }
            if let secret = SandboxView.secret(around: real, controlSocket: socket) {
                throw CommandFailure(
                    "cannot show", path,
                    why: PathBytes.isInside(real, secret)
                        ? "it lies in \(secret), which no sandbox shows"
                        : "\(secret) lies in it, which no sandbox shows",
                    hint: "name less of it, or copy what is needed into the container",
                    status: .usage)
            }
            shown.append(real)
        }
        let program = ProgramStart.find(command[0]).flatMap { path in
            (try? Path.real(path)).map { (path: path, file: $0) }
        }
        return SandboxView(
            container: container, groups: groups, mountPoint: mountPoint, controlSocket: socket,
            stateSocket: state,
            shown: shown, sharesNetwork: network, program: program, starter: Sandbox.program)
    }
}
