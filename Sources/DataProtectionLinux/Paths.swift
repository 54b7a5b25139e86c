/// Where things lie, in words.
enum Paths {
    /// The directory that an item is made in.
    static func directory(of path: String) -> String {
        let directory = (path as NSString).deletingLastPathComponent
        return directory.isEmpty ? "." : directory
    }

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

    /// Where a symbolic link leads; the path itself where it is none, or leads nowhere.
    static func resolved(_ path: String) -> String {
        guard let real = realpath(path, nil) else { return path }
        defer { free(real) }
        return String(cString: real)
    }
}
