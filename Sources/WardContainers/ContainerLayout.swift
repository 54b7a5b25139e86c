/// What a container is for.
public enum ContainerKind: String, CaseIterable, Sendable {
    case application, `extension`, group

    /// Where containers of this kind lie, inside the volume.
    public var directory: String { directoryNames.joined(separator: "/") }

    /// The same, one name after another.
    public var directoryNames: [String] {
        switch self {
        case .application: ["Containers", "Data", "Application"]
        case .extension: ["Containers", "Data", "PluginKitPlugin"]
        case .group: ["Containers", "Shared", "AppGroup"]
        }
    }

    /// The directories that a new container has, each after the one it lies in; relative to the
    /// container.
    public var contents: [String] {
        let library = [
            "Library", ContainerLayout.applicationSupport, ContainerLayout.caches,
            ContainerLayout.preferences,
        ]
        return self == .group
            ? library : [ContainerLayout.documents] + library + [ContainerLayout.temporary]
    }
}

/// Where things lie in a volume's containers.
public enum ContainerLayout {
    public static let top = "Containers"
    public static let documents = "Documents"
    public static let library = "Library"
    public static let applicationSupport = "Library/Application Support"
    public static let caches = "Library/Caches"
    public static let preferences = "Library/Preferences"
    public static let temporary = "tmp"

    /// Inside the volume, without a slash in front.
    public static func path(_ kind: ContainerKind, _ id: ContainerID) -> String {
        kind.directory + "/" + id.text
    }

    /// What a path that ends in a container's names is about: `…/Containers/Data/Application/ID`;
    /// nil for others. `volume`: the part in front.
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

    /// Being made: not a container yet. A crash leaves it; the next `create` or `remove` takes it
    /// away.
    static let stagePrefix = ".ward-new-"
    /// Being removed: a container no more, from the moment it has this name.
    static let removedPrefix = ".ward-gone-"
}
