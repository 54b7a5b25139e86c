import ArgumentParser
import WardConsole
import WardContainers
import WardControl
import WardFormat
import WardSystem

/// Names a mounted volume and a container in it.
struct ContainerTarget: ParsableArguments {
    @Argument(help: "The mount point, or any path in it.", completion: .directory)
    var mountpoint: String
    @Argument(help: "The app's bundle identifier.") var id: String

    func id(_ what: String) throws(CommandFailure) -> ContainerID {
        do throws(ContainerID.Invalid) {
            return try ContainerID(id)
        } catch {
            throw CommandFailure(
                what, "'\(id.prefix(160))'", why: error.reason,
                hint:
                    "an ID is like org.example.diary: letters, digits, dots, hyphens, underscores",
                status: .usage)
        }
    }

    func containers(_ what: String) throws(CommandFailure) -> VolumeContainers {
        try ContainerTarget.containers(mountpoint, what)
    }

    /// The containers of the volume that contains `path`.
    static func containers(
        _ path: String, _ what: String
    ) throws(CommandFailure) -> VolumeContainers {
        guard FileClass.isOnWard(path) else {
            // The error names a dead daemon or another user's mount.
            if (try? Syscall.stat(path)) == nil { _ = try VolumeConnection(what, path: path) }
            throw FileClass.notOnWard(what, path)
        }
        let real: String
        do throws(Errno) {
            real = try Path.real(path)
        } catch {
            throw CommandFailure(what, path, errno: error)
        }
        guard let mount = MountTable.now.covering(real), mount.isWard else {
            throw FileClass.notOnWard(what, path)
        }
        guard mount.root == "/" else {
            throw CommandFailure(
                what, path, why: "only a part of the volume is mounted there",
                hint: "name the volume's own mount point: ward status lists them",
                status: .notAVolume)
        }
        return VolumeContainers(root: mount.mountPoint)
    }

    /// Turns a container error into a message with a hint.
    static func failure(
        _ what: String, _ error: ContainerError, in mountPoint: String
    ) -> CommandFailure {
        let place = Text.shellQuoted(mountPoint)
        func failure(_ hint: String, _ status: ExitStatus) -> CommandFailure {
            CommandFailure(what, error.subject, why: error.reason, hint: hint, status: status)
        }
        switch error.code {
        case .notFound: return failure("ward container list \(place)", .noInput)
        case .occupied:
            return failure("ward container list \(place) shows what is there", .cannotCreate)
        case .otherTeam:
            return failure(
                "ward container list \(place) shows who shares it; an app of another team needs "
                    + "another ID, or another group", .notPermitted)
        case .inUse: return failure("ward container list \(place)", .temporary)
        case .busy: return failure("try again when that is done", .temporary)
        case .changed:
            return failure("nothing was removed; try again, and see what goes", .temporary)
        case .tooLarge: return failure("name fewer groups, or shorter ones", .badData)
        case .system(.invalidArgument):
            return CommandFailure(
                what, error.subject, why: "its class is refused there",
                hint: "ward events \(place) says why", status: .cannotCreate)
        case .system(let reason): return CommandFailure(what, error.subject, errno: reason)
        }
    }
}
