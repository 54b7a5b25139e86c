import Synchronization
internal import WardContainers
internal import WardSystem

/// The user's directories in the container of this program (`ward container run`,
/// `$WARD_CONTAINER`), or in the container that a test has entered.
enum ContainerDirectories {
    /// The container's root; nil outside of a container.
    static var root: String? { ContainerContext.root }

    /// Stands for a home directory that must not be used. Nothing can be made below a file, also
    /// not by root (`ENOTDIR`).
    private static let nowhere = "/dev/null/outside-of-any-container"
    private static let told = Mutex<Set<String>>([])

    /// The directory that holds the user's directories; nil outside of a container, where
    /// Foundation's are used.
    private static var place: String? {
        if let root { return root }
        guard let reason = ContainerContext.refusal else { return nil }
        if told.withLock({ $0.insert(reason).inserted }) {
            let text =
                "DataProtection: \(reason): the user's directories are \(nowhere), where nothing can "
                + "be written. SimulatedContainer.run or enter() gives the app's; "
                + "CFFIXED_USER_HOME names another home.\n"
            FileHandle.standardError.write(Data(text.utf8))
        }
        return nowhere
    }

    /// The URL of a directory at `path` in the container.
    private static func url(_ path: String) -> URL? {
        place.map { URL(fileURLWithPath: $0 + "/" + path, isDirectory: true) }
    }

    static var home: URL? { place.map { URL(fileURLWithPath: $0, isDirectory: true) } }
    /// The directory for temporary files; nil outside of a container, where Foundation's is used.
    static var temporary: URL? { root == nil ? nil : url(ContainerLayout.temporary) }

    /// The user's directory of a kind; nil outside of a container, and for kinds that a container
    /// does not have.
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

    /// The container of a group; nil where the app's entitlements do not name the group.
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
