extension URL {
    /// As Foundation's; in a container (`ward container run`) it is the container.
    public static var homeDirectory: URL { FileManager.default.homeDirectoryForCurrentUser }

    /// As Foundation's; in a container it is the container's `tmp`.
    public static var temporaryDirectory: URL { FileManager.default.temporaryDirectory }

    /// Apple's, which Foundation lacks on Linux: `FileManager`'s directory of that kind.
    public static var documentsDirectory: URL { userDirectory(.documentDirectory, "Documents") }

    /// Apple's, which Foundation lacks on Linux.
    public static var libraryDirectory: URL { userDirectory(.libraryDirectory, "Library") }

    /// Apple's, which Foundation lacks on Linux.
    public static var applicationSupportDirectory: URL {
        userDirectory(.applicationSupportDirectory, ".local/share")
    }

    /// Apple's, which Foundation lacks on Linux.
    public static var cachesDirectory: URL { userDirectory(.cachesDirectory, ".cache") }

    private static func userDirectory(
        _ directory: FileManager.SearchPathDirectory, _ fallback: String
    ) -> URL {
        FileManager.default.urls(for: directory, in: .userDomainMask).first
            ?? homeDirectory.appendingPathComponent(fallback, isDirectory: true)
    }
}
