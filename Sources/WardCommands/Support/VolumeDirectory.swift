import Glibc
import WardControl
import WardKeys
import WardSystem
import WardVolume

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

    /// The volume was erased just now, by a tenth wrong passcode, behind the back of the daemon
    /// that may serve it: that has keys in memory still.
    static func endErasedMount(_ path: String) {
        guard let client = try? RuntimeDirectory().serving(path)?.connect(),
            let status = try? client.status()
        else { return }
        _ = try? client.announceErase(uuid: status.uuid)
    }

    /// Keeps daemons away while an unmounted volume's keybag changes, or the volume is checked:
    /// they hold the same lock.
    static func lock(_ path: String, _ what: String) throws(CommandFailure) -> VolumeHold {
        do throws(Errno) {
            return try VolumeHold(path)
        } catch {
            guard error == .wouldBlock else { throw CommandFailure(what, path, errno: error) }
            throw VolumeDirectory.inUse(what, path)
        }
    }

    /// Why a volume's lock can't be had: where the volume is mounted, as far as this machine knows.
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
