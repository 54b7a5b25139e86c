import Synchronization
internal import WardContainers
internal import WardSystem

/// Where things lie in the container that this program runs in (`ward container run`,
/// `$WARD_CONTAINER`), or that a test has entered.
enum ContainerDirectories {
    /// The container's root; nil outside of any.
    static var root: String? { ContainerContext.root }

    /// In the place of a home directory that nobody may have: nothing can be made below a file, for
    /// root neither (ENOTDIR).
    private static let nowhere = "/dev/null/outside-of-any-container"
    private static let told = Mutex<Set<String>>([])

    /// The directory that the user's directories are in; nil outside of a container, where they are
    /// Foundation's.
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

    /// A directory in the container, as a URL that says so.
    private static func url(_ path: String) -> URL? {
        place.map { URL(fileURLWithPath: $0 + "/" + path, isDirectory: true) }
    }

    static var home: URL? { place.map { URL(fileURLWithPath: $0, isDirectory: true) } }
    /// Temporary files are nobody's home: outside of a container they are Foundation's.
    static var temporary: URL? { root == nil ? nil : url(ContainerLayout.temporary) }

    /// The user's directory of a kind; nil outside of a container, and for those that it has none
    /// of.
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
