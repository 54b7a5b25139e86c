internal import CWardLinux
internal import WardSystem

/// A file that gets its class before its first byte, and its name when it is complete. The steps
/// are `O_TMPFILE`, the attribute and linkat(2) (row O15 of the semantics).
///
/// Before Linux 6.2 the kernel has no `O_TMPFILE` for FUSE. There a hidden directory of that class
/// beside the file does the same. A file without a name is removed with this value.
struct UnnamedFile: ~Copyable {
    /// Open for reading and writing.
    let descriptor: OwnedDescriptor
    /// The hidden directory, removed with this value. The file in it is named `new`.
    private let staging: String?

    /// Makes the file in `directory`, with that directory's class where `protection` is nil. The
    /// `mode` is that of open(2), before the umask. With `staged` it uses the hidden directory of
    /// older kernels.
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
            // EISDIR: the kernel does not know the flag.
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
            // Without `protection`, `staging` has inherited the class of `directory`.
            if let protection {
                try VolumeAttributes.setProtection(protection, ofItemAt: staging)
            }
        } catch {
            rmdir(staging)
            throw error
        }
        return staging
    }

    /// Writes `bytes` and syncs them.
    func write(_ bytes: UnsafeRawBufferPointer) throws(Errno) {
        guard let start = bytes.baseAddress, !bytes.isEmpty else { return }
        try Syscall.writeAll(descriptor.rawValue, start, bytes.count)
        try Syscall.fsync(descriptor.rawValue)
    }

    /// Gives the file a name. Throws `EEXIST` where the name is taken.
    func link(to path: String) throws(Errno) {
        if let staging {
            try Syscall.linkat(AT_FDCWD, staging + "/new", AT_FDCWD, path)
        } else {
            try Syscall.linkat(
                AT_FDCWD, "/proc/self/fd/\(descriptor.rawValue)", AT_FDCWD, path,
                flags: AT_SYMLINK_FOLLOW)
        }
    }

    /// Gives the file the name `path`, in one step, in place of an existing item.
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

/// `__O_TMPFILE | O_DIRECTORY` of open(2), which glibc declares only with _GNU_SOURCE.
private let temporaryFileFlag: Int32 = 0o20_000_000 | O_DIRECTORY
