import CWardLinux
import Glibc

/// `struct stat`, stat(2): the type, which shares its name with the call.
public typealias FileStatus = stat
/// `struct statvfs`, statvfs(3).
public typealias FileSystemStatus = statvfs

/// System calls as Swift functions: they throw `Errno`, retry `EINTR`, and take raw descriptors.
///
/// Names are the kernel's; man page section 2 describes them. Buffers are raw pointers because
/// callers have page-sized buffers that live longer than any call.
public enum Syscall {
    /// Runs a call that reports failure as -1 and `errno`; retries when a signal interrupted it.
    @inlinable @inline(__always)
    public static func check<R: FixedWidthInteger & SignedInteger>(
        _ body: () -> R
    ) throws(Errno) -> R {
        while true {
            let result = body()
            if result != -1 { return result }
            let error = ward_errno()
            if error == EINTR { continue }
            throw Errno(rawValue: error)
        }
    }

    // MARK: Opening and closing

    public static func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t = 0
    ) throws(Errno) -> Int32 {
        try check { ward_openat(directory, path, flags | O_CLOEXEC, mode) }
    }

    public static func openat(
        _ directory: Int32, _ path: String, _ flags: Int32, mode: mode_t = 0
    ) throws(Errno) -> Int32 {
        try check { ward_openat(directory, path, flags | O_CLOEXEC, mode) }
    }

    public static func open(_ path: String, _ flags: Int32, mode: mode_t = 0) throws(Errno) -> Int32
    {
        try openat(AT_FDCWD, path, flags, mode: mode)
    }

    /// Closes without reporting an error: for descriptors whose errors an earlier `fsync` reported,
    /// or do not matter.
    public static func close(_ descriptor: Int32) {
        _ = Glibc.close(descriptor)
    }

    // MARK: Content

    /// Reads with `pread(2)` until `count` bytes or the end of the file. Returns the number of
    /// bytes.
    public static func pread(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) -> Int {
        try readWhole(count) { done throws(Errno) in
            try check { Glibc.pread(descriptor, buffer + done, count - done, offsetBytes + done) }
        }
    }

    /// Calls `part` with the number of bytes so far, until there are `count` or it returns 0. A
    /// short answer does not mean the end of the file.
    @inline(__always)
    package static func readWhole(
        _ count: Int, _ part: (Int) throws(Errno) -> Int
    ) throws(Errno) -> Int {
        var done = 0
        while done < count {
            let got = try part(done)
            if got == 0 { break }
            done += got
        }
        return done
    }

    /// Writes with `pwrite(2)` until everything is written. After a short write it goes on, so that
    /// the reason for it is thrown.
    public static func pwrite(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) {
        var done = 0
        while done < count {
            let put = try check {
                Glibc.pwrite(descriptor, buffer + done, count - done, offsetBytes + done)
            }
            // A backing store that writes nothing without an error would be asked for ever.
            guard put > 0 else { throw .ioError }
            done += put
        }
    }

    /// One read(2), which may return fewer bytes than `count`; 0 at the end.
    public static func read(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int
    ) throws(Errno) -> Int {
        try check { Glibc.read(descriptor, buffer, count) }
    }

    /// Writes with `write(2)` until everything is written.
    public static func writeAll(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int
    ) throws(Errno) {
        var done = 0
        while done < count {
            done += try check { Glibc.write(descriptor, buffer + done, count - done) }
        }
    }

    public static func ftruncate(_ descriptor: Int32, _ sizeBytes: Int) throws(Errno) {
        _ = try check { Glibc.ftruncate(descriptor, sizeBytes) }
    }

    public static func fallocate(
        _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
    ) throws(Errno) {
        _ = try check { ward_fallocate(descriptor, mode, offsetBytes, lengthBytes) }
    }

    public static func lseek(
        _ descriptor: Int32, _ offsetBytes: Int, _ whence: Int32
    ) throws(Errno) -> Int {
        try check { Glibc.lseek(descriptor, offsetBytes, whence) }
    }

    public static func fsync(_ descriptor: Int32) throws(Errno) {
        if Durability.isGivenUp { return }
        _ = try check { Glibc.fsync(descriptor) }
    }

    public static func fdatasync(_ descriptor: Int32) throws(Errno) {
        if Durability.isGivenUp { return }
        _ = try check { Glibc.fdatasync(descriptor) }
    }

    public static func syncfs(_ descriptor: Int32) throws(Errno) {
        if Durability.isGivenUp { return }
        _ = try check { ward_syncfs(descriptor) }
    }

    /// Syncs the file system of `directory`: syncfs(2), which counts only where fsync(2) succeeds,
    /// too.
    ///
    /// A file system that gave up, as ext4 does after an error of its journal, may do nothing on
    /// syncfs(2) and return no error. It is read-only (`sync_filesystem`, fs/sync.c) or shut down
    /// (`ext4_sync_fs` before Linux 6.13). fsync(2) has no other work here. It says EINVAL where it
    /// can't sync directories, which means nothing here.
    public static func syncFileSystem(of directory: Int32) throws(Errno) {
        try syncfs(directory)
        do throws(Errno) {
            try fsync(directory)
        } catch .invalidArgument {
        }
    }

    // MARK: Attributes

    public static func fstat(_ descriptor: Int32) throws(Errno) -> FileStatus {
        var result = FileStatus()
        _ = try check { Glibc.fstat(descriptor, &result) }
        return result
    }

    public static func fstatat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32 = AT_SYMLINK_NOFOLLOW
    ) throws(Errno) -> FileStatus {
        var result = FileStatus()
        _ = try check { Glibc.fstatat(directory, path, &result, flags) }
        return result
    }

    /// Follows symbolic links.
    public static func stat(_ path: String) throws(Errno) -> FileStatus {
        var result = FileStatus()
        _ = try check { Glibc.fstatat(AT_FDCWD, path, &result, 0) }
        return result
    }

    public static func fstatvfs(_ descriptor: Int32) throws(Errno) -> FileSystemStatus {
        var result = FileSystemStatus()
        _ = try check { Glibc.fstatvfs(descriptor, &result) }
        return result
    }

    public static func fchmod(_ descriptor: Int32, _ mode: mode_t) throws(Errno) {
        _ = try check { Glibc.fchmod(descriptor, mode) }
    }

    /// Follows symbolic links: Linux has no mode of a link to change.
    public static func fchmodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t
    ) throws(Errno) {
        _ = try check { Glibc.fchmodat(directory, path, mode, 0) }
    }

    public static func fchown(_ descriptor: Int32, _ uid: uid_t, _ gid: gid_t) throws(Errno) {
        _ = try check { Glibc.fchown(descriptor, uid, gid) }
    }

    public static func fchownat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ uid: uid_t, _ gid: gid_t
    ) throws(Errno) {
        _ = try check { Glibc.fchownat(directory, path, uid, gid, AT_SYMLINK_NOFOLLOW) }
    }

    public static func futimens(
        _ descriptor: Int32, access: timespec, modification: timespec
    ) throws(Errno) {
        var times = (access, modification)
        _ = try check {
            withUnsafeBytes(of: &times) {
                Glibc.futimens(descriptor, $0.baseAddress!.assumingMemoryBound(to: timespec.self))
            }
        }
    }

    public static func utimensat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, access: timespec, modification: timespec
    ) throws(Errno) {
        var times = (access, modification)
        _ = try check {
            withUnsafeBytes(of: &times) {
                Glibc.utimensat(
                    directory, path, $0.baseAddress!.assumingMemoryBound(to: timespec.self),
                    AT_SYMLINK_NOFOLLOW)
            }
        }
    }

    // MARK: Names

    public static func mkdirat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t
    ) throws(Errno) {
        _ = try check { Glibc.mkdirat(directory, path, mode) }
    }

    public static func mknodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) throws(Errno) {
        _ = try check { Glibc.mknodat(directory, path, mode, device) }
    }

    /// `flags`: 0 or `AT_REMOVEDIR`.
    public static func unlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32 = 0
    ) throws(Errno) {
        _ = try check { Glibc.unlinkat(directory, path, flags) }
    }

    /// `flags`: `RENAME_NOREPLACE`, `RENAME_EXCHANGE` or 0.
    public static func renameat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>, flags: UInt32 = 0
    ) throws(Errno) {
        _ = try check {
            ward_renameat2(oldDirectory, oldPath, newDirectory, newPath, flags)
        }
    }

    public static func linkat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>, flags: Int32 = 0
    ) throws(Errno) {
        _ = try check { Glibc.linkat(oldDirectory, oldPath, newDirectory, newPath, flags) }
    }

    public static func symlinkat(
        target: UnsafePointer<CChar>, _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) {
        _ = try check { Glibc.symlinkat(target, directory, path) }
    }

    /// Returns the number of bytes of the target copied to `buffer`, without a terminating zero.
    public static func readlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawPointer,
        _ capacity: Int
    ) throws(Errno) -> Int {
        try check {
            Glibc.readlinkat(
                directory, path, buffer.assumingMemoryBound(to: CChar.self), capacity)
        }
    }

    // MARK: Waiting

    /// `poll(2)`; a negative time-out waits for ever. Returns the number of ready descriptors. It
    /// also works where `RLIMIT_NOFILE` was lowered below the number of entries, which poll(2)
    /// itself refuses.
    public static func poll(
        _ descriptors: UnsafeMutableBufferPointer<pollfd>, timeoutMilliseconds: Int32
    ) throws(Errno) -> Int32 {
        try check {
            ward_poll(descriptors.baseAddress, descriptors.count, timeoutMilliseconds)
        }
    }
}
