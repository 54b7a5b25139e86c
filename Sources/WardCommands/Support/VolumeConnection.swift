import ArgumentParser
import Glibc
import WardConsole
import WardControl
import WardSystem

/// The mounted volume of a command.
struct MountPointArgument: ParsableArguments {
    @Argument(
        help: """
            The mount point, or any path in it; may be left out while one volume is mounted, and \
            below ward test.
            """,
        completion: .directory)
    var mountpoint: String?

    /// Finds the volume without asking its daemon. `what` begins the error message.
    func find(_ what: String) throws(CommandFailure) -> FoundVolume {
        try VolumeConnection.find(what, mountpoint)
    }

    /// Connects to the daemon. `what` begins the error message.
    func connect(_ what: String) throws(CommandFailure) -> VolumeConnection {
        try VolumeConnection(what, path: mountpoint)
    }
}

/// A connection to the daemon of one mounted volume; turns errors into messages for users.
struct VolumeConnection {
    let what: String
    /// The path from the command line; nil without one.
    let path: String?
    let client: ControlClient

    init(_ what: String, path: String?) throws(CommandFailure) {
        try self.init(what, path: path, volume: try VolumeConnection.find(what, path))
    }

    /// Connects to a volume that was found already.
    init(_ what: String, path: String?, volume: FoundVolume) throws(CommandFailure) {
        self.what = what
        self.path = path
        do throws(ControlError) {
            client = try volume.connect()
        } catch {
            throw VolumeConnection.failure(what, path, volume, error)
        }
    }

    /// Connects to a known socket.
    init(_ what: String, socketPath: String) throws(CommandFailure) {
        self.what = what
        path = nil
        do throws(ControlError) {
            client = try ControlClient(socketPath: socketPath)
        } catch {
            throw CommandFailure(what, nil, error)
        }
    }

    /// Finds the volume. Without a path it is the test's volume below `ward test`; of several
    /// mounted volumes it is the one around the working directory.
    static func find(_ what: String, _ path: String?) throws(CommandFailure) -> FoundVolume {
        let directory = RuntimeDirectory()
        do throws(ControlError) {
            do throws(ControlError) {
                return try directory.find(path ?? TestEnvironment.volume)
            } catch {
                if path == nil, case .severalMounted = error.code,
                    let here = try? directory.find(".")
                {
                    return here
                }
                throw error
            }
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    /// Explains why the volume's daemon can't be reached.
    static func failure(
        _ what: String, _ path: String?, _ volume: FoundVolume, _ error: ControlError
    ) -> CommandFailure {
        if let mount = volume.mount, !mount.isServed {
            return CommandFailure(
                what, path ?? mount.mountPoint, why: "its daemon died",
                hint: "ward unmount \(Text.shellQuoted(mount.mountPoint)), then mount it again",
                status: .unavailable)
        }
        return CommandFailure(what, path ?? volume.mountPoint, error)
    }

    /// Makes a call and turns its error into a message.
    func call<R>(_ body: (ControlClient) throws(ControlError) -> R) throws(CommandFailure) -> R {
        do throws(ControlError) {
            return try body(client)
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    func status() throws(CommandFailure) -> VolumeStatus {
        try call { client throws(ControlError) in try client.status() }
    }
}
