internal import CWardLinux
internal import WardSystem

/// Writes whole files with a protection class.
enum ProtectedWriting {
    /// The mode of new files, before the umask.
    static let usualMode: mode_t = 0o666

    /// The directory of the written file. A symbolic link is followed, unless the call replaces the
    /// link itself or requires a new file.
    static func directory(of path: String, _ options: Data.WritingOptions) -> String {
        let isNew = options.contains(.atomic) || options.contains(.withoutOverwriting)
        return Paths.directory(of: isNew ? path : Paths.target(path))
    }

    /// Writes `bytes` to the file at `path` and syncs them, as Foundation's `write(to:options:)`
    /// does. The file has the class `protection` from its first byte on.
    ///
    /// - `.withoutOverwriting`: only a new file is made.
    /// - `.atomic`: an existing item is replaced in one step; a symbolic link is replaced, not its
    ///   target. The new file gets the mode of the old file, not its owner or attributes, as on
    ///   Apple's platforms.
    /// - Otherwise an existing file first gets the class, which needs both keys (row I8), and is
    ///   then overwritten.
    ///
    /// `mode` is the exact mode of a new file; without it the mode is the usual one with the umask.
    /// Throws `CocoaError`.
    static func write(
        _ bytes: UnsafeRawBufferPointer, to path: String, _ protection: FileProtectionType,
        _ options: Data.WritingOptions, mode: mode_t? = nil
    ) throws {
        do throws(Errno) {
            if options.contains(.withoutOverwriting) {
                try create(bytes, path, protection, mode)
            } else if options.contains(.atomic) {
                try replace(bytes, path, protection, mode)
            } else {
                try overwrite(bytes, Paths.target(path), protection, mode)
            }
        } catch {
            throw FileFailure.error(error, path, .writing, asking: protection)
        }
    }

    /// Makes a file without a name. `mode` is set after the class: setting a class may need the
    /// right to write (row I10).
    private static func makeFile(
        _ path: String, _ protection: FileProtectionType, _ mode: mode_t?
    ) throws(Errno) -> UnnamedFile {
        let file = try UnnamedFile(
            in: Paths.directory(of: path), protection: protection,
            mode: mode == nil ? usualMode : 0o600)
        if let mode { try Syscall.fchmod(file.descriptor.rawValue, mode & 0o7777) }
        return file
    }

    private static func create(
        _ bytes: UnsafeRawBufferPointer, _ path: String, _ protection: FileProtectionType,
        _ mode: mode_t?
    ) throws(Errno) {
        // An early refusal, before any byte is written. linkat(2) decides.
        if Paths.mode(path) != nil { throw .fileExists }
        let file = try makeFile(path, protection, mode)
        try file.write(bytes)
        try file.link(to: path)
    }

    private static func replace(
        _ bytes: UnsafeRawBufferPointer, _ path: String, _ protection: FileProtectionType,
        _ mode: mode_t?
    ) throws(Errno) {
        let before = Paths.mode(path)
        if let before, before & S_IFMT == S_IFDIR { throw .isDirectory }
        var exactly = mode
        if exactly == nil, let before, before & S_IFMT == S_IFREG {
            // Without set-user-ID, because the new file may have another owner.
            exactly = before & 0o777
        }
        let file = try makeFile(path, protection, exactly)
        try file.write(bytes)
        if before == nil {
            do throws(Errno) {
                return try file.link(to: path)
            } catch {
                // Another program has made the file in the meantime.
                guard error == .fileExists else { throw error }
            }
        }
        try file.replace(path)
    }

    private static func overwrite(
        _ bytes: UnsafeRawBufferPointer, _ path: String, _ protection: FileProtectionType,
        _ mode: mode_t?
    ) throws(Errno) {
        for _ in 0..<100 {
            do throws(Errno) {
                return try overwriteExisting(bytes, path, protection)
            } catch {
                guard error == .noSuchFileOrDirectory else { throw error }
            }
            do throws(Errno) {
                return try create(bytes, path, protection, mode)
            } catch {
                // Another program made the file in between: overwrite it.
                guard error == .fileExists else { throw error }
            }
        }
        throw .fileExists
    }

    private static func overwriteExisting(
        _ bytes: UnsafeRawBufferPointer, _ path: String, _ protection: FileProtectionType
    ) throws(Errno) {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CLOEXEC)
        let name = "/proc/self/fd/\(file.rawValue)"
        if try VolumeAttributes.protection(ofItemAt: name) != protection {
            try VolumeAttributes.setProtection(protection, ofItemAt: name)
        }
        try Syscall.ftruncate(file.rawValue, 0)
        guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
        try Syscall.writeAll(file.rawValue, start, bytes.count)
        try Syscall.fsync(file.rawValue)
    }
}
