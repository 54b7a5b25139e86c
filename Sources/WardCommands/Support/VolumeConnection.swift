import ArgumentParser
import Glibc
import WardControl
import WardSystem

/// Which mounted volume a verb is about.
struct MountPointArgument: ParsableArguments {
    @Argument(
        help: """
            The mount point, or any path in it; may be left out while one volume is mounted, and \
            below ward test.
            """,
        completion: .directory)
    var mountpoint: String?

    /// Connects to the daemon; `what` begins the sentence if that fails.
    func connect(_ what: String) throws(CommandFailure) -> VolumeConnection {
        try VolumeConnection(what, path: mountpoint)
    }
}

/// A connection to the daemon of one mounted volume, with failures in a person's words.
struct VolumeConnection {
    let what: String
    /// What was named on the command line, or nil.
    let path: String?
    let client: ControlClient

    init(_ what: String, path: String?) throws(CommandFailure) {
        self.what = what
        self.path = path
        do throws(ControlError) {
            client = try ControlClient(socketPath: VolumeConnection.socket(for: path))
        } catch {
            if let path, let dead = DeadMount.find(path) {
                throw CommandFailure(
                    what, path, why: "its daemon died",
                    hint: "ward unmount \(Text.shellQuoted(dead.mountPoint)), then mount it again",
                    status: .unavailable)
            }
            if let path, let mount = DeadMount.covering(path), access(mount.mountPoint, F_OK) != 0,
                errno == EACCES
            {
                // The kernel lets nobody else in, not even root, unless the mount says --allow-other.
                throw CommandFailure(
                    what, path, why: "it was mounted by another user, who alone may enter",
                    hint: "run ward as that user, or mount with --allow-other",
                    status: .notPermitted)
            }
            throw CommandFailure(what, path, error)
        }
    }

    /// For who knows the socket already.
    init(_ what: String, socketPath: String) throws(CommandFailure) {
        self.what = what
        path = nil
        do throws(ControlError) {
            client = try ControlClient(socketPath: socketPath)
        } catch {
            throw CommandFailure(what, nil, error)
        }
    }

    /// Below `ward test` it is the test's volume where none is named. With several volumes mounted and none named it is
    /// the one the working directory is in.
    private static func socket(for path: String?) throws(ControlError) -> String {
        let directory = RuntimeDirectory()
        if path == nil, let volume = TestEnvironment.volume {
            return try directory.socket(for: volume)
        }
        do throws(ControlError) {
            return try directory.socket(for: path)
        } catch {
            if case .severalMounted = error.code, let here = try? directory.socket(for: ".") {
                return here
            }
            throw error
        }
    }

    /// Makes a call and puts a failure into words.
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
