internal import WardSystem

extension FileManager {
    /// Puts the new item in the place of the old one, in one step. The item that is there
    /// afterwards has the new one's class (row I6), and the old one's permissions unless
    /// `usingNewMetadataOnly` is asked for.
    ///
    /// With `backupItemName` the old one gets that name beside it, with its own class, until the
    /// new one is in place; `withoutDeletingBackupItem` keeps it. Returns where the new one is.
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
            // With itself there is nothing to exchange, and what would be removed afterwards is the
            // item.
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
                    // Other file systems need not be able to; one that can replaces a file in one
                    // step all the same.
                    guard error == .invalidArgument else { throw error }
                    try Syscall.renameat(AT_FDCWD, replacement, AT_FDCWD, original)
                    return originalItemURL
                }
                // What was replaced has the new one's name now. Where it can't be removed it stays
                // there, and the call has done what it was to do: tried again after an error, it
                // would put the old one back and remove the new.
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
