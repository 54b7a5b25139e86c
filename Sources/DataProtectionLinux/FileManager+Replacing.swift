internal import WardSystem

extension FileManager {
    /// Replaces the original item by the new item in one step. The result has the class of the new
    /// item (row I6). A file keeps the permissions of the original, unless the options have
    /// `usingNewMetadataOnly`.
    ///
    /// With `backupItemName`, the original gets that name in its directory and keeps its class. It
    /// is removed afterwards unless the options have `withoutDeletingBackupItem`. Returns the URL
    /// of the result.
    @discardableResult
    public func replaceItemAt(
        _ originalItemURL: URL, withItemAt newItemURL: URL, backupItemName: String? = nil,
        options: FileManager.ItemReplacementOptions = []
    ) throws -> URL? {
        let original = originalItemURL.path
        let replacement = newItemURL.path
        do throws(Errno) {
            var status = FileStatus()
            guard lstat(original, &status) == 0 else { throw Errno(rawValue: errno) }
            // An exchange of an item with itself does nothing, and the removal afterwards would
            // remove it.
            if Paths.isSame(replacement, status) { return originalItemURL }
            let isFile = Paths.mode(replacement).map { $0 & S_IFMT == S_IFREG } ?? false
            if !options.contains(.usingNewMetadataOnly), isFile,
                status.st_mode & S_IFMT == S_IFREG
            {
                try Syscall.fchmodat(AT_FDCWD, replacement, status.st_mode & 0o777)
            }
            guard let backupItemName else {
                do throws(Errno) {
                    try exchange(replacement, original)
                } catch {
                    // Some file systems can't exchange two names, but can replace a file in one
                    // step.
                    guard error == .invalidArgument else { throw error }
                    try Syscall.renameat(AT_FDCWD, replacement, AT_FDCWD, original)
                    return originalItemURL
                }
                // The original now has the new item's name. A failed removal is no error: a caller
                // that tries again would put the original back and remove the new item.
                try? removeItem(atPath: replacement)
                return originalItemURL
            }
            let backup = Paths.directory(of: original) + "/" + backupItemName
            try exchange(replacement, original)
            try Syscall.renameat(AT_FDCWD, replacement, AT_FDCWD, backup)
            if !options.contains(.withoutDeletingBackupItem) {
                try? removeItem(atPath: backup)
            }
            return originalItemURL
        } catch {
            throw FileFailure.error(error, original, .writing)
        }
    }

    private func exchange(_ one: String, _ other: String) throws(Errno) {
        try Syscall.renameat(AT_FDCWD, one, AT_FDCWD, other, flags: 2 /* RENAME_EXCHANGE */)
    }
}
