import Glibc
import WardConsole
import WardControl
import WardKeys
import WardSystem
import WardVolume

/// A volume by its backing directory, for commands that use the keybag directly.
enum VolumeDirectory {
    /// The backing directory, given directly or by a path in its mount.
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

    /// Ends the mount of a volume that a tenth wrong passcode erased just now. Its daemon does not
    /// know that and still has keys in memory.
    static func endErasedMount(_ path: String) {
        guard let client = try? RuntimeDirectory().serving(path)?.connect(),
            let status = try? client.status()
        else { return }
        _ = try? client.announceErase(uuid: status.uuid)
    }

    /// Takes the lock that daemons hold, for changing the keybag of an unmounted volume or checking
    /// it.
    static func lock(_ path: String, _ what: String) throws(CommandFailure) -> VolumeHold {
        do throws(Errno) {
            return try VolumeHold(path)
        } catch {
            guard error == .wouldBlock else { throw CommandFailure(what, path, errno: error) }
            throw VolumeDirectory.inUse(what, path)
        }
    }

    /// Explains why the lock is held: where the volume is mounted, as far as this machine knows.
    static func inUse(_ what: String, _ path: String) -> CommandFailure {
        let mount = VolumeMount.all().first { PathBytes.isSame($0.volume, path) }
        if let mount {
            return CommandFailure(
                what, path, why: "it is mounted on \(Text.printable(mount.mountPoint))",
                hint: "ward unmount \(Text.shellQuoted(mount.mountPoint))", status: .temporary)
        }
        let holder = VolumeHold.holder(of: path)
        return CommandFailure(
            what, path,
            why: holder.map { "process \($0) has it mounted or works on it" }
                ?? "it is in use, perhaps on another machine",
            hint: holder.map { "see what it is: ps -fp \($0)" } ?? "unmount it there",
            status: .temporary)
    }
}
