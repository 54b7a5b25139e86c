import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// The directory with the device's own secrets for one volume: `<root>/<uuid>/`, mode 0700. Its
/// files:
///
/// - `device.key` (0600), `effaceable.key` (one key, or {old, new} during a change)
/// - `remembered` (the generation written last), `attempts` (wrong passcodes)
/// - `trusted-hosts`, `recovery` (known kits)
/// - `lock` (held while any of them changes), `ward.log`
///
/// Never inside the volume and never under a mount point: a copied or rolled-back volume must not
/// bring them along.
public struct StateDirectory: Equatable, Sendable {
    /// The directory of this volume.
    public let path: String

    public init(root: String, volumeUUID: [UInt8]) {
        let name = VolumeParameters(uuid: volumeUUID, pageBytes: 4096).uuidString
        path = root.hasSuffix("/") ? root + name : root + "/" + name
    }

    public var deviceKeyPath: String { path + "/device.key" }
    public var effaceableKeyPath: String { path + "/effaceable.key" }
    public var rememberedPath: String { path + "/remembered" }
    public var attemptsPath: String { path + "/attempts" }
    /// The recovery kits that were made and opened, with times.
    public var recoveryPath: String { path + "/recovery" }
    public var trustedHostsPath: String { path + "/trusted-hosts" }
    public var lockPath: String { path + "/lock" }
    /// The log of a daemon in the background, where there is no journal. It has paths of refused
    /// and damaged files in it.
    public var logPath: String { path + "/ward.log" }

    /// Returns `$XDG_STATE_HOME/ward`, by default `~/.local/state/ward` (XDG Base Directory
    /// Specification 0.8: a relative path is ignored).
    public static func defaultRoot() -> String {
        if let value = getenv("XDG_STATE_HOME") {
            let path = String(cString: value)
            if path.hasPrefix("/") { return path + "/ward" }
        }
        return home() + "/.local/state/ward"
    }

    private static func home() -> String {
        if let value = getenv("HOME") {
            let path = String(cString: value)
            if path.hasPrefix("/") { return path }
        }
        if let entry = getpwuid(geteuid()), let directory = entry.pointee.pw_dir {
            return String(cString: directory)
        }
        return "/"
    }
}
