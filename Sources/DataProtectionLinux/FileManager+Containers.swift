extension FileManager {
    /// As Foundation's; in a container (`ward container run`) the user's directories are the
    /// container's.
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

    /// As Foundation's; in a container the user's directories are the container's. Where the
    /// container was removed nothing is made in its place: throws `CocoaError.fileNoSuchFile`.
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
            // A directory in its place would have no class of its app's.
            guard let home = ContainerDirectories.home, fileExists(atPath: home.path) else {
                throw CocoaError(.fileNoSuchFile, userInfo: [NSFilePathErrorKey: own.path])
            }
            try createDirectory(at: own, withIntermediateDirectories: true)
        }
        return own
    }

    /// The container of a group that this app shares with others; nil where its entitlements don't
    /// name the group, and outside of a container.
    public func containerURL(
        forSecurityApplicationGroupIdentifier groupIdentifier: String
    ) -> URL? {
        ContainerDirectories.groupURL(groupIdentifier)
    }

    /// As Foundation's; in a container it is the container's `tmp`.
    public var temporaryDirectory: URL {
        ContainerDirectories.temporary ?? self.FoundationEssentials::temporaryDirectory
    }

    /// As Foundation's; in a container it is the container.
    public var homeDirectoryForCurrentUser: URL {
        ContainerDirectories.home ?? self.FoundationEssentials::homeDirectoryForCurrentUser
    }
}

/// As Foundation's; in a container it is the container.
// swift-format-ignore: AlwaysUseLowerCamelCase
public func NSHomeDirectory() -> String {
    ContainerDirectories.home?.path ?? Foundation::NSHomeDirectory()
}

/// As Foundation's, with a slash at its end; in a container it is the container's `tmp`.
// swift-format-ignore: AlwaysUseLowerCamelCase
public func NSTemporaryDirectory() -> String {
    ContainerDirectories.temporary.map { $0.path + "/" } ?? Foundation::NSTemporaryDirectory()
}

/// As Foundation's; in a container the user's directories are the container's.
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
