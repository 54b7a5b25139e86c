extension URL {
    /// Foundation's directory; in a container (`ward container run`), the container.
    public static var homeDirectory: URL { FileManager.default.homeDirectoryForCurrentUser }

    /// Foundation's directory; in a container, the container's `tmp`.
    public static var temporaryDirectory: URL { FileManager.default.temporaryDirectory }

    /// The directory for documents, as `FileManager` tells it. Foundation lacks this property on
    /// Linux.
    public static var documentsDirectory: URL { userDirectory(.documentDirectory, "Documents") }

    /// The library directory, as `FileManager` tells it.
    public static var libraryDirectory: URL { userDirectory(.libraryDirectory, "Library") }

    /// The directory for application support files, as `FileManager` tells it.
    public static var applicationSupportDirectory: URL {
        userDirectory(.applicationSupportDirectory, ".local/share")
    }

    /// The directory for caches, as `FileManager` tells it.
    public static var cachesDirectory: URL { userDirectory(.cachesDirectory, ".cache") }

    private static func userDirectory(
        _ directory: FileManager.SearchPathDirectory, _ fallback: String
    ) -> URL {
        FileManager.default.urls(for: directory, in: .userDomainMask).first
            ?? homeDirectory.appendingPathComponent(fallback, isDirectory: true)
    }
}
