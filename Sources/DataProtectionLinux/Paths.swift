internal import WardSystem

/// Where things lie, in words.
enum Paths {
    /// The directory that an item is made in.
    static func directory(of path: String) -> String {
        let directory = (path as NSString).deletingLastPathComponent
        return directory.isEmpty ? "." : directory
    }

    /// Whether what is copied from one place to the other may have a class at both: false where one
    /// certainly has none.
    static func mayBeOnVolumes(_ source: String, _ destination: String) -> Bool {
        [source, destination].allSatisfy {
            isWhole($0) && VolumeAttributes.place(of: directory(of: $0)) != .elsewhere
        }
    }

    /// Whether the system sees all of a path: a string of C ends with its first NUL, and names
    /// another item then.
    static func isWhole(_ path: String) -> Bool { !path.utf8.contains(0) }

    /// The item at `path` and those of its parents that are not there, the outermost first.
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

    /// Where a symbolic link leads, also where nothing is there yet; the path itself where it is
    /// none.
    static func target(_ path: String) -> String {
        var place = path
        // As many as the kernel follows, path_resolution(7); it refuses what is left of a loop.
        for _ in 0..<40 {
            guard let mode = mode(place), mode & S_IFMT == S_IFLNK,
                let next = try? FileManager.default.destinationOfSymbolicLink(atPath: place)
            else { break }
            place = next.hasPrefix("/") ? next : directory(of: place) + "/" + next
        }
        return place
    }

    /// `st_mode` of what has this name, links not followed; nil where nothing can be seen there.
    static func mode(_ path: String) -> mode_t? {
        var status = FileStatus()
        return lstat(path, &status) == 0 ? status.st_mode : nil
    }

    /// Whether this name leads to the item with that status, links not followed.
    static func isSame(_ path: String, _ other: FileStatus) -> Bool {
        var status = FileStatus()
        return lstat(path, &status) == 0 && status.st_dev == other.st_dev
            && status.st_ino == other.st_ino
    }

    /// Whether a symbolic link has this name.
    static func isLink(_ path: String) -> Bool {
        mode(path).map { $0 & S_IFMT == S_IFLNK } ?? false
    }
}
