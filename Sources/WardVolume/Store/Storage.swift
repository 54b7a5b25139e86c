import CWardLinux
import Glibc
import WardSystem

/// The backing store as the volume sees it: system calls on descriptors and names below them.
///
/// `PosixStorage` is the real one. Tests use others, which fail the n-th call or lose unsynced
/// data. Every method is the system call of its name (man pages section 2) and throws its `Errno`.
public protocol Storage: AnyObject, Sendable {
    func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32
    func close(_ descriptor: Int32)
    /// Reads all there is: fewer bytes than `count` mean the end of the file, unlike with pread(2).
    func pread(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) -> Int
    /// Writes all bytes, or throws.
    func pwrite(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno)
    func ftruncate(_ descriptor: Int32, _ sizeBytes: Int) throws(Errno)
    func fallocate(
        _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
    ) throws(Errno)
    func lseek(_ descriptor: Int32, _ offsetBytes: Int, _ whence: Int32) throws(Errno) -> Int
    func fsync(_ descriptor: Int32) throws(Errno)
    /// Drops the file's clean pages from memory: the next read comes from the disk
    /// (posix_fadvise(2), `POSIX_FADV_DONTNEED`).
    func forgetCached(_ descriptor: Int32)
    /// Drops a range. Only for bytes that are written, or being written (`beginWriting`).
    func forgetCached(_ descriptor: Int32, _ bytes: Range<Int>)
    /// Starts bringing a range into memory, and does not wait (posix_fadvise(2),
    /// `POSIX_FADV_WILLNEED`). True where that is of no use: the first byte is in memory already,
    /// there are none, or the backing store can't tell.
    func readAhead(_ descriptor: Int32, _ bytes: Range<Int>) -> Bool
    /// Starts writing a range to the disk (sync_file_range(2), `SYNC_FILE_RANGE_WRITE`). Waits
    /// while the backing store has too much to write. The next sync may not report an error thrown
    /// here: the pages are lost.
    func beginWriting(_ descriptor: Int32, _ bytes: Range<Int>) throws(Errno)
    func fdatasync(_ descriptor: Int32) throws(Errno)
    func syncfs(_ descriptor: Int32) throws(Errno)
    func fstat(_ descriptor: Int32) throws(Errno) -> FileStatus
    func fstatat(_ directory: Int32, _ path: UnsafePointer<CChar>) throws(Errno) -> FileStatus
    func fstatvfs(_ descriptor: Int32) throws(Errno) -> FileSystemStatus
    func mkdirat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t
    ) throws(Errno)
    func mknodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) throws(Errno)
    func unlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32
    ) throws(Errno)
    func renameat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>, flags: UInt32
    ) throws(Errno)
    func linkat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>
    ) throws(Errno)
    /// Gives a name to an open file (`O_TMPFILE`, or one found by descriptor).
    func linkDescriptor(
        _ descriptor: Int32, _ newDirectory: Int32, _ newPath: UnsafePointer<CChar>
    ) throws(Errno)
    func symlinkat(
        target: UnsafePointer<CChar>, _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno)
    func readlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawPointer,
        _ capacity: Int
    ) throws(Errno) -> Int
    /// chmod of the file that the descriptor refers to, `O_PATH` descriptors included.
    func chmod(_ descriptor: Int32, _ mode: mode_t) throws(Errno)
    /// chown likewise; never follows a symbolic link.
    func chown(_ descriptor: Int32, _ uid: uid_t, _ gid: gid_t) throws(Errno)
    /// utimensat likewise; never follows a symbolic link.
    func setTimes(
        _ descriptor: Int32, access: timespec, modification: timespec
    ) throws(Errno)
    /// fgetxattr likewise. An empty buffer asks for the size.
    func getxattr(
        _ descriptor: Int32, _ name: String, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int
    /// Reads an attribute of the file with this name, without following a link (getxattrat(2)).
    func getxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ name: String,
        _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int
    func listxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int
    func setxattr(
        _ descriptor: Int32, _ name: String, _ value: UnsafeRawBufferPointer, flags: Int32
    ) throws(Errno)
    func removexattr(_ descriptor: Int32, _ name: String) throws(Errno)
    func listxattr(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int
    /// Lists all names of the directory but `.` and `..`.
    func list(
        _ directory: Int32, _ body: (DirectoryEntry) -> Void
    ) throws(Errno)
    /// Returns the next entries from `offset` on (0: the first), "." and ".." among them, each with
    /// the offset behind it. Empty at the end. `directory`: a descriptor of this reader alone,
    /// because the call moves its position.
    func entries(
        _ directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)]
    /// Reads as many entries as `entries` would return, into the backing store's memory. Returns
    /// the offset of the next ones; nil at the end.
    func passEntries(_ directory: Int32, from offset: UInt64) throws(Errno) -> UInt64?
    /// Whether the changes of names that a power cut leaves are always the first ones, with or
    /// without syncs.
    func ordersChanges(_ descriptor: Int32) -> Bool
    /// Whether a read may wait for a disk of this machine, and the backing store tells which pages
    /// are in memory.
    func waitsForDisk(_ descriptor: Int32) -> Bool
    /// Nanoseconds of a clock for measuring how long a call took.
    func nanoseconds() -> UInt64
    /// Nanoseconds of a clock as coarse as the times of files; never goes back.
    func coarseNanoseconds() -> UInt64
}

extension Storage {
    /// Opens the file with this name as a place alone (`O_PATH`, open(2)), without following a
    /// link.
    func openPlace(
        _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) -> Int32 {
        try openat(directory, path, Int32(0o10000000) /* O_PATH */ | O_NOFOLLOW, mode: 0)
    }
    public func forgetCached(_ descriptor: Int32, _ bytes: Range<Int>) {}
    public func beginWriting(_ descriptor: Int32, _ bytes: Range<Int>) throws(Errno) {}
    public func readAhead(_ descriptor: Int32, _ bytes: Range<Int>) -> Bool { true }
    public func waitsForDisk(_ descriptor: Int32) -> Bool { false }
    public func nanoseconds() -> UInt64 { SystemClock.nanoseconds() }
    public func passEntries(_ directory: Int32, from offset: UInt64) throws(Errno) -> UInt64? {
        try entries(directory, from: offset).last?.next
    }
    /// For backing stores in memory: returns all remaining entries at once. Offsets are counts, and
    /// become wrong when a name goes.
    public func entries(
        _ directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        var all = [".", ".."].map {
            DirectoryEntry(name: Array($0.utf8), inode: 0, type: UInt8(DT_DIR))
        }
        try list(directory) { all.append($0) }
        return all.enumerated().dropFirst(Int(clamping: offset)).map { ($1, UInt64($0) + 1) }
    }
}

/// The backing store on Linux.
public class PosixStorage: Storage, @unchecked Sendable {
    // Sendable: it holds nothing. The class is not final, because `FillableStorage` adds an atomic.

    public init() {}

    /// Descriptors that programs can't use up by opening files: the control socket and the keybag
    /// need some.
    static let reservedDescriptors: Int32 = 128
    /// The first reserved number. The kernel gives out the lowest free number.
    private static let descriptorLimit: Int32 = {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(7) /* RLIMIT_NOFILE */, &limit) == 0 else {
            return .max
        }
        return max(64, Int32(clamping: limit.rlim_cur) - reservedDescriptors)
    }()

    public func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        let descriptor = try Syscall.openat(directory, path, flags, mode: mode)
        guard descriptor < PosixStorage.descriptorLimit else {
            Syscall.close(descriptor)
            // A file that this call made must not stay.
            if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL {
                try? Syscall.unlinkat(directory, path, 0)
            }
            throw .tooManyOpenFiles
        }
        return descriptor
    }
    public func close(_ descriptor: Int32) { Syscall.close(descriptor) }
    public func pread(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) -> Int { try Syscall.pread(descriptor, buffer, count, at: offsetBytes) }
    public func pwrite(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) { try Syscall.pwrite(descriptor, buffer, count, at: offsetBytes) }
    public func ftruncate(_ descriptor: Int32, _ sizeBytes: Int) throws(Errno) {
        try Syscall.ftruncate(descriptor, sizeBytes)
    }
    public func fallocate(
        _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
    ) throws(Errno) {
        try Syscall.fallocate(
            descriptor, mode: mode, offsetBytes: offsetBytes, lengthBytes: lengthBytes)
    }
    public func lseek(
        _ descriptor: Int32, _ offsetBytes: Int, _ whence: Int32
    ) throws(Errno) -> Int { try Syscall.lseek(descriptor, offsetBytes, whence) }
    public func forgetCached(_ descriptor: Int32) {
        _ = posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED)
    }
    public func forgetCached(_ descriptor: Int32, _ bytes: Range<Int>) {
        _ = posix_fadvise(descriptor, bytes.lowerBound, bytes.count, POSIX_FADV_DONTNEED)
    }
    public func readAhead(_ descriptor: Int32, _ bytes: Range<Int>) -> Bool {
        guard ward_is_in_memory(descriptor, off_t(bytes.lowerBound)) == 0 else { return true }
        _ = posix_fadvise(descriptor, bytes.lowerBound, bytes.count, POSIX_FADV_WILLNEED)
        return false
    }
    public func beginWriting(_ descriptor: Int32, _ bytes: Range<Int>) throws(Errno) {
        do throws(Errno) {
            _ = try Syscall.check {
                ward_begin_writing(descriptor, off_t(bytes.lowerBound), off_t(bytes.count))
            }
        } catch .invalidArgument, .noFunction, .notPermitted, .illegalSeek {
            // The backing store or the kernel does not know the call.
        }
    }
    public func fsync(_ descriptor: Int32) throws(Errno) { try Syscall.fsync(descriptor) }
    public func fdatasync(_ descriptor: Int32) throws(Errno) { try Syscall.fdatasync(descriptor) }
    public func syncfs(_ descriptor: Int32) throws(Errno) { try Syscall.syncfs(descriptor) }
    public func fstat(_ descriptor: Int32) throws(Errno) -> FileStatus {
        try Syscall.fstat(descriptor)
    }
    public func fstatat(
        _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) -> FileStatus { try Syscall.fstatat(directory, path) }
    public func fstatvfs(_ descriptor: Int32) throws(Errno) -> FileSystemStatus {
        try Syscall.fstatvfs(descriptor)
    }
    public func mkdirat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t
    ) throws(Errno) { try Syscall.mkdirat(directory, path, mode) }
    public func mknodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) throws(Errno) { try Syscall.mknodat(directory, path, mode, device) }
    public func unlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32
    ) throws(Errno) { try Syscall.unlinkat(directory, path, flags) }
    public func renameat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>, flags: UInt32
    ) throws(Errno) {
        try Syscall.renameat(oldDirectory, oldPath, newDirectory, newPath, flags: flags)
    }
    public func linkat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>
    ) throws(Errno) { try Syscall.linkat(oldDirectory, oldPath, newDirectory, newPath) }
    public func symlinkat(
        target: UnsafePointer<CChar>, _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) { try Syscall.symlinkat(target: target, directory, path) }
    public func readlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawPointer,
        _ capacity: Int
    ) throws(Errno) -> Int { try Syscall.readlinkat(directory, path, buffer, capacity) }

    // Calls that an O_PATH descriptor does not take go through its name in /proc (proc(5),
    // /proc/PID/fd).

    private func withProcPath<R>(
        _ descriptor: Int32, _ body: (UnsafePointer<CChar>) throws(Errno) -> R
    ) throws(Errno) -> R {
        var path: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
        let count = ward_proc_fd_path(&path, MemoryLayout.size(ofValue: path), descriptor)
        precondition(count < 32)
        do {
            return try withUnsafeBytes(of: &path) {
                try body($0.baseAddress!.assumingMemoryBound(to: CChar.self))
            }
        } catch {
            throw error as! Errno
        }
    }

    public func linkDescriptor(
        _ descriptor: Int32, _ newDirectory: Int32, _ newPath: UnsafePointer<CChar>
    ) throws(Errno) {
        try withProcPath(descriptor) { path throws(Errno) in
            try Syscall.linkat(AT_FDCWD, path, newDirectory, newPath, flags: AT_SYMLINK_FOLLOW)
        }
    }
    public func chmod(_ descriptor: Int32, _ mode: mode_t) throws(Errno) {
        try withProcPath(descriptor) { path throws(Errno) in
            try Syscall.fchmodat(AT_FDCWD, path, mode)
        }
    }
    public func chown(_ descriptor: Int32, _ uid: uid_t, _ gid: gid_t) throws(Errno) {
        _ = try Syscall.check { ward_fchownat_empty(descriptor, uid, gid) }
    }
    public func setTimes(
        _ descriptor: Int32, access: timespec, modification: timespec
    ) throws(Errno) {
        var times = (access, modification)
        do throws(Errno) {
            _ = try Syscall.check { ward_utimensat_empty(descriptor, &times) }
        } catch .badFileDescriptor, .invalidArgument, .noSuchFileOrDirectory {
            // Kernels before 5.8 do not take AT_EMPTY_PATH here.
            try withProcPath(descriptor) { path throws(Errno) in
                _ = try Syscall.check { ward_utimensat_path(path, &times) }
            }
        }
    }
    public func getxattr(
        _ descriptor: Int32, _ name: String, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try withProcPath(descriptor) { path throws(Errno) in
            try Syscall.check { ward_getxattr(path, name, buffer.baseAddress, buffer.count) }
        }
    }
    public func getxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ name: String,
        _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try Syscall.check {
            ward_getxattrat(directory, path, name, buffer.baseAddress, buffer.count)
        }
    }
    public func listxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try Syscall.check { ward_listxattrat(directory, path, buffer.baseAddress, buffer.count) }
    }
    public func setxattr(
        _ descriptor: Int32, _ name: String, _ value: UnsafeRawBufferPointer, flags: Int32
    ) throws(Errno) {
        try withProcPath(descriptor) { path throws(Errno) in
            _ = try Syscall.check {
                ward_setxattr(
                    path, name, value.baseAddress ?? UnsafeRawPointer(path), value.count, flags)
            }
        }
    }
    public func removexattr(_ descriptor: Int32, _ name: String) throws(Errno) {
        try withProcPath(descriptor) { path throws(Errno) in
            _ = try Syscall.check { ward_removexattr(path, name) }
        }
    }
    public func listxattr(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try withProcPath(descriptor) { path throws(Errno) in
            try Syscall.check {
                ward_listxattr(path, buffer.baseAddress, buffer.count)
            }
        }
    }

    public func list(_ directory: Int32, _ body: (DirectoryEntry) -> Void) throws(Errno) {
        try DirectoryReading.entries(of: directory, body)
    }
    public func entries(
        _ directory: Int32, from offset: UInt64
    ) throws(Errno) -> [(entry: DirectoryEntry, next: UInt64)] {
        try DirectoryReading.entries(of: directory, from: offset)
    }
    public func passEntries(_ directory: Int32, from offset: UInt64) throws(Errno) -> UInt64? {
        try DirectoryReading.pass(of: directory, from: offset)
    }
    private func fileSystem(of descriptor: Int32) -> BackingFileSystem? {
        do throws(Errno) {
            return try withProcPath(descriptor) { path throws(Errno) in
                BackingFileSystem(of: path)
            }
        } catch {
            return nil
        }
    }
    public func ordersChanges(_ descriptor: Int32) -> Bool {
        fileSystem(of: descriptor)?.ordersChanges ?? false
    }
    public func waitsForDisk(_ descriptor: Int32) -> Bool {
        fileSystem(of: descriptor)?.isLocal ?? false
    }
    public func nanoseconds() -> UInt64 { SystemClock.nanoseconds() }
    public func coarseNanoseconds() -> UInt64 { SystemClock.coarseNanoseconds() }
}
