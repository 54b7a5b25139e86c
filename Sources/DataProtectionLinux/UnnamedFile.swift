internal import CWardLinux
internal import WardSystem

/// A file that gets its class before its first byte, and its name when it is complete: `O_TMPFILE`,
/// the attribute, linkat(2) (row O15 of the semantics). Where the kernel has no `O_TMPFILE` for
/// FUSE (before 6.2), a hidden directory of that class beside it does the same. What has no name
/// when the value goes is gone.
struct UnnamedFile: ~Copyable {
    /// Open for reading and writing.
    let descriptor: OwnedDescriptor
    /// The hidden directory, removed when the value goes, and the file's name there.
    private let staging: String?

    /// Created in `directory`; its class is the directory's unless one is given. `mode` as of
    /// open(2), with the umask. `staged`: in a hidden directory, as on kernels that need it.
    init(
        in directory: String, protection: FileProtectionType?, mode: mode_t, staged: Bool = false
    ) throws(Errno) {
        do throws(Errno) {
            if staged { throw .notSupported }
            let file = try OwnedDescriptor(
                opening: directory, temporaryFileFlag | O_RDWR | O_CLOEXEC, mode: mode)
            if let protection {
                try VolumeAttributes.setProtection(
                    protection, ofItemAt: "/proc/self/fd/\(file.rawValue)")
            }
            descriptor = file
            staging = nil
        } catch {
            // EISDIR: a kernel that does not know the flag.
            guard error == .notSupported || error == .isDirectory else { throw error }
            let staging = try UnnamedFile.makeStaging(in: directory, protection)
            do throws(Errno) {
                descriptor = try OwnedDescriptor(
                    opening: staging + "/new", O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode: mode)
                self.staging = staging
            } catch {
                rmdir(staging)
                throw error
            }
        }
    }

    deinit {
        guard let staging else { return }
        unlink(staging + "/new")
        rmdir(staging)
    }

    private static func makeStaging(
        in directory: String, _ protection: FileProtectionType?
    ) throws(Errno) -> String {
        let staging = "\(directory)/.ward-new-\(UUID().uuidString)"
        try Syscall.mkdirat(AT_FDCWD, staging, 0o700)
        do throws(Errno) {
            // Without one asked for it is the directory's own, which this one has inherited.
            if let protection {
                try VolumeAttributes.setProtection(protection, ofItemAt: staging)
            }
        } catch {
            rmdir(staging)
            throw error
        }
        return staging
    }

    /// Writes and syncs.
    func write(_ bytes: UnsafeRawBufferPointer) throws(Errno) {
        guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
        try Syscall.writeAll(descriptor.rawValue, start, bytes.count)
        try Syscall.fsync(descriptor.rawValue)
    }

    /// Gives it a name. Throws `EEXIST` where that is taken.
    func link(to path: String) throws(Errno) {
        if let staging {
            try Syscall.linkat(AT_FDCWD, staging + "/new", AT_FDCWD, path)
        } else {
            try Syscall.linkat(
                AT_FDCWD, "/proc/self/fd/\(descriptor.rawValue)", AT_FDCWD, path,
                flags: AT_SYMLINK_FOLLOW)
        }
    }

    /// Gives it the name of what is there, which is replaced in one step.
    func replace(_ path: String) throws(Errno) {
        let temporary = "\(Paths.directory(of: path))/.ward-new-\(UUID().uuidString)"
        try link(to: temporary)
        do throws(Errno) {
            try Syscall.renameat(AT_FDCWD, temporary, AT_FDCWD, path)
        } catch {
            unlink(temporary)
            throw error
        }
    }
}

/// `__O_TMPFILE | O_DIRECTORY`, open(2); behind _GNU_SOURCE.
private let temporaryFileFlag: Int32 = 0o20_000_000 | O_DIRECTORY
