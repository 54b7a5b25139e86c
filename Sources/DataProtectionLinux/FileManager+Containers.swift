extension FileManager {
    /// The directories of a kind, as Foundation's. In a container (`ward container run`) the user's
    /// directories are the container's.
    public func urls(
        for directory: FileManager.SearchPathDirectory,
        in domainMask: FileManager.SearchPathDomainMask
    ) -> [URL] {
        guard domainMask.contains(.userDomainMask),
            let own = ContainerDirectories.url(for: directory)
        else { return self.FoundationEssentials::urls(for: directory, in: domainMask) }
        let others = domainMask.subtracting(.userDomainMask)
        return [own]
            + (others.isEmpty
                ? [] : self.FoundationEssentials::urls(for: directory, in: others))
    }

    /// The directory of a kind, as Foundation's. In a container the user's directories are the
    /// container's.
    ///
    /// - Throws: `CocoaError.fileNoSuchFile` if the container was removed; nothing is made in its
    ///   place.
    public func url(
        for directory: FileManager.SearchPathDirectory,
        in domain: FileManager.SearchPathDomainMask, appropriateFor url: URL?,
        create shouldCreate: Bool
    ) throws -> URL {
        guard domain.contains(.userDomainMask),
            let own = ContainerDirectories.url(for: directory)
        else {
            return try self.FoundationEssentials::url(
                for: directory, in: domain, appropriateFor: url, create: shouldCreate)
        }
        if shouldCreate {
            // A directory made in the container's place would not have the app's class.
            guard let home = ContainerDirectories.home, fileExists(atPath: home.path) else {
                throw CocoaError(.fileNoSuchFile, userInfo: [NSFilePathErrorKey: own.path])
            }
            try createDirectory(at: own, withIntermediateDirectories: true)
        }
        return own
    }

    /// The container of a group that this app shares with other apps. Nil where the app's
    /// entitlements do not name the group, and outside of a container.
    public func containerURL(
        forSecurityApplicationGroupIdentifier groupIdentifier: String
    ) -> URL? {
        ContainerDirectories.groupURL(groupIdentifier)
    }

    /// Foundation's directory; in a container, the container's `tmp`.
    public var temporaryDirectory: URL {
        ContainerDirectories.temporary ?? self.FoundationEssentials::temporaryDirectory
    }

    /// Foundation's directory; in a container, the container.
    public var homeDirectoryForCurrentUser: URL {
        ContainerDirectories.home ?? self.FoundationEssentials::homeDirectoryForCurrentUser
    }
}

/// Foundation's path; in a container, that of the container.
// swift-format-ignore: AlwaysUseLowerCamelCase
public func NSHomeDirectory() -> String {
    ContainerDirectories.home?.path ?? Foundation::NSHomeDirectory()
}

/// Foundation's path, with a slash at its end; in a container, that of the container's `tmp`.
// swift-format-ignore: AlwaysUseLowerCamelCase
public func NSTemporaryDirectory() -> String {
    ContainerDirectories.temporary.map { $0.path + "/" } ?? Foundation::NSTemporaryDirectory()
}

/// Foundation's paths; in a container the user's directories are the container's.
// swift-format-ignore: AlwaysUseLowerCamelCase
public func NSSearchPathForDirectoriesInDomains(
    _ directory: FileManager.SearchPathDirectory, _ domainMask: FileManager.SearchPathDomainMask,
    _ expandTilde: Bool
) -> [String] {
    guard domainMask.contains(.userDomainMask),
        let own = ContainerDirectories.url(for: directory)
    else {
        return Foundation::NSSearchPathForDirectoriesInDomains(directory, domainMask, expandTilde)
    }
    let others = domainMask.subtracting(.userDomainMask)
    let path = expandTilde ? own.path : "~" + own.path.dropFirst(NSHomeDirectory().count)
    return [path]
        + (others.isEmpty
            ? [] : Foundation::NSSearchPathForDirectoriesInDomains(directory, others, expandTilde))
}
