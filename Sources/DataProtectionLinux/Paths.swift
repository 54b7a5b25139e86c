internal import WardSystem

/// Questions about paths.
enum Paths {
    /// The directory that holds the item.
    static func directory(of path: String) -> String {
        let directory = (path as NSString).deletingLastPathComponent
        return directory.isEmpty ? "." : directory
    }

    /// Whether source and destination may both have classes; false where one certainly has none.
    static func mayBeOnVolumes(_ source: String, _ destination: String) -> Bool {
        [source, destination].allSatisfy {
            isWhole($0) && VolumeAttributes.place(of: directory(of: $0)) != .elsewhere
        }
    }

    /// Whether the path has no NUL. The system would see only the part before it, which names
    /// another item.
    static func isWhole(_ path: String) -> Bool { !path.utf8.contains(0) }

    /// The missing ones among the item at `path` and its parents, the outermost first.
    static func missing(_ path: String) -> [String] {
        var result: [String] = []
        var place = path
        while access(place, F_OK) != 0, errno == ENOENT {
            result.insert(place, at: 0)
            let parent = directory(of: place)
            if parent == place { break }
            place = parent
        }
        return result
    }

    /// The path that a symbolic link leads to, also where no item is there yet; `path` itself where
    /// it is no link.
    static func target(_ path: String) -> String {
        var place = path
        // The kernel follows 40 links at most, path_resolution(7). It refuses a longer chain or a
        // loop.
        for _ in 0..<40 {
            guard let mode = mode(place), mode & S_IFMT == S_IFLNK,
                let next = try? FileManager.default.destinationOfSymbolicLink(atPath: place)
            else { break }
            place = next.hasPrefix("/") ? next : directory(of: place) + "/" + next
        }
        return place
    }

    /// `st_mode` of the item; links are not followed. Nil where lstat(2) fails.
    static func mode(_ path: String) -> mode_t? {
        var status = FileStatus()
        return lstat(path, &status) == 0 ? status.st_mode : nil
    }

    /// Whether `path` is the item with the status `other`; links are not followed.
    static func isSame(_ path: String, _ other: FileStatus) -> Bool {
        var status = FileStatus()
        return lstat(path, &status) == 0 && status.st_dev == other.st_dev
            && status.st_ino == other.st_ino
    }

    /// Whether the item is a symbolic link.
    static func isLink(_ path: String) -> Bool {
        mode(path).map { $0 & S_IFMT == S_IFLNK } ?? false
    }
}
