internal import WardContainers
internal import WardSystem

/// Where things lie in the container that this program runs in (`ward container run`, `$WARD_CONTAINER`).
enum ContainerDirectories {
    /// The container's root; nil outside of any.
    static var root: String? { ContainerContext.root }

    /// A directory in the container, as a URL that says so.
    static func url(_ path: String) -> URL? {
        root.map { URL(fileURLWithPath: $0 + "/" + path, isDirectory: true) }
    }

    static var home: URL? { root.map { URL(fileURLWithPath: $0, isDirectory: true) } }
    static var temporary: URL? { url(ContainerLayout.temporary) }

    /// The user's directory of a kind; nil outside of a container, and for those that it has none of.
    static func url(for directory: FileManager.SearchPathDirectory) -> URL? {
        switch directory {
        case .documentDirectory: url(ContainerLayout.documents)
        case .libraryDirectory: url(ContainerLayout.library)
        case .applicationSupportDirectory: url(ContainerLayout.applicationSupport)
        case .cachesDirectory: url(ContainerLayout.caches)
        case .desktopDirectory: url("Desktop")
        case .downloadsDirectory: url("Downloads")
        case .moviesDirectory: url("Movies")
        case .musicDirectory: url("Music")
        case .picturesDirectory: url("Pictures")
        case .sharedPublicDirectory: url("Public")
        default: nil
        }
    }

    /// The container of a group that the app's entitlements name; nil for every other.
    static func groupURL(_ identifier: String) -> URL? {
        guard let root, let place = ContainerLayout.parse(containerPath: root),
            place.kind != .group,
            let group = try? ContainerID(identifier),
            let container = VolumeContainers.container(at: root),
            container.record.groups.contains(group)
        else { return nil }
        let volume = place.volume == "/" ? "" : place.volume
        let path = volume + "/" + ContainerLayout.path(.group, group)
        guard Paths.mode(path).map({ $0 & S_IFMT == S_IFDIR }) ?? false else { return nil }
        return URL(fileURLWithPath: path, isDirectory: true)
    }
}
