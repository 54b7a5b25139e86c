import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// A backing store that tests can make full. As on a disk without room, bytes that are there can be
/// overwritten, and calls that need room fail with ENOSPC.
public final class FillableStorage: PosixStorage, @unchecked Sendable {
    private let full = Atomic(false)

    public override init() { super.init() }

    public func setFull(_ isFull: Bool) { full.store(isFull, ordering: .relaxed) }

    private func needRoom() throws(Errno) {
        if full.load(ordering: .relaxed) { throw .noSpace }
    }

    public override func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        let isNew = flags & O_CREAT != 0 && (try? fstatat(directory, path)) == nil
        // `__O_TMPFILE`, without the `O_DIRECTORY` that `O_TMPFILE` includes.
        if isNew || flags & 0o20_000_000 != 0 { try needRoom() }
        return try super.openat(directory, path, flags, mode: mode)
    }

    public override func pwrite(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) {
        if full.load(ordering: .relaxed) {
            let end = Int(try fstat(descriptor).st_size)
            guard offsetBytes + count <= end else { throw .noSpace }
        }
        try super.pwrite(descriptor, buffer, count, at: offsetBytes)
    }

    public override func fallocate(
        _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
    ) throws(Errno) {
        if mode & Int32(FALLOC_FL_PUNCH_HOLE) == 0 { try needRoom() }
        try super.fallocate(
            descriptor, mode: mode, offsetBytes: offsetBytes, lengthBytes: lengthBytes)
    }

    public override func mkdirat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t
    ) throws(Errno) {
        try needRoom()
        try super.mkdirat(directory, path, mode)
    }

    public override func mknodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) throws(Errno) {
        try needRoom()
        try super.mknodat(directory, path, mode, device)
    }

    public override func symlinkat(
        target: UnsafePointer<CChar>, _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) {
        try needRoom()
        try super.symlinkat(target: target, directory, path)
    }

    public override func fstatvfs(_ descriptor: Int32) throws(Errno) -> FileSystemStatus {
        var status = try super.fstatvfs(descriptor)
        if full.load(ordering: .relaxed) {
            status.f_bfree = 0
            status.f_bavail = 0
        }
        return status
    }
}
