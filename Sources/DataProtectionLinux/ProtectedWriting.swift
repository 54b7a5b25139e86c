internal import CWardLinux
internal import WardSystem

/// Writes whole files with a class.
enum ProtectedWriting {
    /// New files, before the umask.
    static let usualMode: mode_t = 0o666

    /// Writes `bytes` to the file at `path`, which has `protection` from its first byte on.
    ///
    /// With `.atomic` what was there is replaced in one step; with `.withoutOverwriting` only a new file is made. Otherwise a
    /// file that is there is given the class (which needs both keys, row I8) before anything of it is changed. `mode`: for
    /// a file that is made; by default that of the one it replaces.
    static func write(
        _ bytes: UnsafeRawBufferPointer, to path: String, _ protection: FileProtectionType,
        _ options: Data.WritingOptions, mode: mode_t? = nil
    ) throws {
        let target = Paths.resolved(path)
        do throws(Errno) {
            if options.contains(.withoutOverwriting) {
                try create(bytes, target, protection, mode ?? usualMode)
            } else if options.contains(.atomic) {
                try replace(bytes, target, protection, mode)
            } else {
                try overwrite(bytes, target, protection, mode ?? usualMode)
            }
        } catch {
            throw FileFailure.error(error, path, .writing, asking: protection)
        }
    }

    private static func create(
        _ bytes: UnsafeRawBufferPointer, _ path: String, _ protection: FileProtectionType,
        _ mode: mode_t
    ) throws(Errno) {
        if access(path, F_OK) == 0 { throw .fileExists }
        let file = try UnnamedFile(
            in: Paths.directory(of: path), protection: protection, mode: mode)
        try file.write(bytes)
        try file.link(to: path)
    }

    private static func replace(
        _ bytes: UnsafeRawBufferPointer, _ path: String, _ protection: FileProtectionType,
        _ mode: mode_t?
    ) throws(Errno) {
        let before = try? Syscall.stat(path)
        if let before, before.st_mode & S_IFMT == S_IFDIR { throw .isDirectory }
        let file = try UnnamedFile(
            in: Paths.directory(of: path), protection: protection, mode: mode ?? usualMode)
        if mode == nil, let before {
            try Syscall.fchmod(file.descriptor.rawValue, before.st_mode & 0o7777)
        }
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
        _ mode: mode_t
    ) throws(Errno) {
        for _ in 0..<100 {
            do throws(Errno) {
                let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CLOEXEC)
                let name = "/proc/self/fd/\(file.rawValue)"
                if try VolumeAttributes.protection(ofItemAt: name) != protection {
                    try VolumeAttributes.setProtection(protection, ofItemAt: name)
                }
                try Syscall.ftruncate(file.rawValue, 0)
                guard let start = bytes.baseAddress else { return }
                return try Syscall.writeAll(file.rawValue, start, bytes.count)
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
}
