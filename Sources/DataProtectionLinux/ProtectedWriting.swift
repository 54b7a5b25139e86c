internal import CWardLinux
internal import WardSystem

/// Writes whole files with a class.
enum ProtectedWriting {
    /// New files, before the umask.
    static let usualMode: mode_t = 0o666

    /// Where the file will be: a symbolic link leads to it unless it is replaced or in the way
    /// itself.
    static func directory(of path: String, _ options: Data.WritingOptions) -> String {
        let isNew = options.contains(.atomic) || options.contains(.withoutOverwriting)
        return Paths.directory(of: isNew ? path : Paths.target(path))
    }

    /// Writes `bytes` to the file at `path`, which has `protection` from its first byte on, and
    /// syncs them, as Foundation's `write(to:options:)` does.
    ///
    /// With `.withoutOverwriting` only a new file is made. With `.atomic` what is there is replaced
    /// in one step, a symbolic link itself and not what it leads to, and the new file has the mode
    /// of the old one, as on Apple's platforms (not its owner or attributes). Otherwise a file that
    /// is there is given the class, which needs both keys (row I8), before anything of it is
    /// changed. `mode`: exactly that of a file which is made, in place of the usual one with the
    /// umask.
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

    /// `mode` comes after the class: who may not write a file may not set its class either (row
    /// I10).
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
        // Refused before anything is written; linkat(2) decides.
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
            // Without set-user-ID: the new file may have another owner.
            exactly = before & 0o777
        }
        let file = try makeFile(path, protection, exactly)
        try file.write(bytes)
        if before == nil {
            do throws(Errno) {
                return try file.link(to: path)
            } catch {
                // Somebody else has made one meanwhile.
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
                // Made by somebody else between the two: written over then.
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
