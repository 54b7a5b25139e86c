import WardFormat
import WardVolume

// The directories whose place decides what is left out.
extension BackupWalk {
    /// The meaning of a directory, which its place gives it.
    enum Role {
        case root, containers, data, shared, containerParent, home, library
        /// All that is in it is left out.
        case purged
        case ordinary
    }

    /// Returns the stored names of subdirectories that have a role.
    func specialNames(
        _ role: Role, _ id: [UInt8], _ entries: [BackupEntry]
    ) -> [[UInt8]: Role] {
        func stored(_ name: String) -> [UInt8] {
            Array(name.utf8).withUnsafeBytes { name in
                Array(keys.names.longNameTarget(name, in: id).utf8)
            }
        }
        let home: [(String, Role)] = [("Library", .library), ("tmp", .purged)]
        let wanted: [(String, Role)] =
            switch role {
            case .root:
                isHome(entries, stored)
                    ? [("Containers", .containers)] + home
                    : [("Containers", .containers)]
            case .containers: [("Data", .data), ("Shared", .shared)]
            case .data:
                [("Application", .containerParent), ("PluginKitPlugin", .containerParent)]
            case .shared: [("AppGroup", .containerParent)]
            case .home: home
            case .library: [("Caches", .purged)]
            case .containerParent, .purged, .ordinary: []
            }
        return Dictionary(uniqueKeysWithValues: wanted.map { (stored($0.0), $0.1) })
    }

    /// Whether the volume is one app's home: its top has the three directories of every home on
    /// iOS.
    private func isHome(_ entries: [BackupEntry], _ stored: (String) -> [UInt8]) -> Bool {
        let directories = Set(entries.filter { $0.kind == .directory }.map(\.name))
        return ["Documents", "Library", "tmp"].allSatisfy { directories.contains(stored($0)) }
    }
}
