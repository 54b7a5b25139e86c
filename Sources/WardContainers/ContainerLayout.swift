/// The purpose of a container.
public enum ContainerKind: String, CaseIterable, Sendable {
    case application, `extension`, group

    /// The directory of all containers of this kind, inside the volume.
    public var directory: String { directoryNames.joined(separator: "/") }

    /// The names in `directory`, one after another.
    public var directoryNames: [String] {
        switch self {
        case .application: ["Containers", "Data", "Application"]
        case .extension: ["Containers", "Data", "PluginKitPlugin"]
        case .group: ["Containers", "Shared", "AppGroup"]
        }
    }

    /// The directories of a new container, relative to it. Each comes after the directory that it
    /// lies in.
    public var contents: [String] {
        let library = [
            "Library", ContainerLayout.applicationSupport, ContainerLayout.caches,
            ContainerLayout.preferences,
        ]
        return self == .group
            ? library : [ContainerLayout.documents] + library + [ContainerLayout.temporary]
    }
}

/// The places of containers in a volume.
public enum ContainerLayout {
    public static let top = "Containers"
    public static let documents = "Documents"
    public static let library = "Library"
    public static let applicationSupport = "Library/Application Support"
    public static let caches = "Library/Caches"
    public static let preferences = "Library/Preferences"
    public static let temporary = "tmp"

    /// The container's path inside the volume, without a slash in front.
    public static func path(_ kind: ContainerKind, _ id: ContainerID) -> String {
        kind.directory + "/" + id.text
    }

    /// Splits a path that ends in a container's names, `…/Containers/Data/Application/ID`; nil for
    /// other paths. `volume` is the part in front of these names.
    public static func parse(
        containerPath path: String
    ) -> (volume: String, kind: ContainerKind, id: ContainerID)? {
        let names = path.split(separator: "/").map(String.init)
        for kind in ContainerKind.allCases {
            let count = kind.directoryNames.count + 1
            guard names.count >= count, names.suffix(count).dropLast() == kind.directoryNames[...],
                let id = try? ContainerID(names.last ?? "")
            else { continue }
            return ("/" + names.dropLast(count).joined(separator: "/"), kind, id)
        }
        return nil
    }

    /// Prefix of a container that is being made. A crash leaves it; the next `create` or `remove`
    /// takes it away.
    static let stagePrefix = ".ward-new-"
    /// Prefix of a container that is being removed. With this name it is no container.
    static let removedPrefix = ".ward-gone-"
}
