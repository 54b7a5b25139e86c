import Glibc
import WardControl
import WardKeys
import WardSystem

/// A volume by its backing directory, for what works on the keybag itself.
enum VolumeDirectory {
    /// The backing directory: named itself, or by a path in its mount.
    static func path(_ named: String, _ what: String) throws(CommandFailure) -> String {
        if FileClass.isOnWard(named) {
            return try VolumeConnection(what, path: named).status().volume
        }
        do throws(Errno) {
            return try Path.real(named)
        } catch {
            throw CommandFailure(what, named, errno: error, status: .noInput)
        }
    }

    /// The keybag of the volume in `path`.
    static func open(_ path: String, _ what: String) throws(CommandFailure) -> KeybagStore {
        do throws(KeybagError) {
            return try KeybagStore(volumePath: path, stateRoot: StateDirectory.defaultRoot())
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    static func passcode(
        _ secret: consuming SecretBytes, _ path: String, _ what: String
    ) throws(CommandFailure) -> Passcode {
        do throws(PasscodeError) {
            return try Passcode(utf8: secret)
        } catch {
            throw CommandFailure(what, path, error)
        }
    }

    /// The volume was erased just now, by a tenth wrong passcode, behind the back of the daemon that may serve it: that has
    /// keys in memory still.
    static func endErasedMount(_ path: String) {
        guard let mounted = RuntimeDirectory().mounted().first(where: { $0.volume == path }) else {
            return
        }
        try? ControlClient(socketPath: mounted.socket).erase(uuid: mounted.uuid)
    }

    /// Keeps daemons away while the keybag of an unmounted volume changes: they hold the same lock, flock(2).
    static func lock(_ path: String, _ what: String) throws(CommandFailure) -> OwnedDescriptor {
        do throws(Errno) {
            let directory = try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
            _ = try Syscall.check { flock(directory.rawValue, LOCK_EX | LOCK_NB) }
            return directory
        } catch {
            if error == .wouldBlock {
                throw CommandFailure(
                    what, path, why: "it is mounted, and its daemon can't be reached from here",
                    hint: "name its mount point, as the user who mounted it", status: .temporary)
            }
            throw CommandFailure(what, path, errno: error)
        }
    }
}
