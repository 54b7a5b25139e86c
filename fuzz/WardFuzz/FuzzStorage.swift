import Glibc
import WardSystem

@testable import WardVolume

/// Files of a temporary directory. They must not become large, and need not survive a power cut.
final class FuzzStorage: PosixStorage, @unchecked Sendable {
    static let maximumBytes = 8 << 20

    private func require(_ endBytes: Int) throws(Errno) {
        if endBytes > FuzzStorage.maximumBytes { throw Errno(rawValue: EFBIG) }
    }

    override func pwrite(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) {
        try require(offsetBytes.addingReportingOverflow(count).partialValue)
        try super.pwrite(descriptor, buffer, count, at: offsetBytes)
    }
    override func ftruncate(_ descriptor: Int32, _ sizeBytes: Int) throws(Errno) {
        try require(sizeBytes)
        try super.ftruncate(descriptor, sizeBytes)
    }
    override func fallocate(
        _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
    ) throws(Errno) {
        let (end, overflow) = offsetBytes.addingReportingOverflow(lengthBytes)
        try require(overflow ? .max : end)
        try super.fallocate(
            descriptor, mode: mode, offsetBytes: offsetBytes, lengthBytes: lengthBytes)
    }
    /// Makes no devices, because they would be real ones. FIFOs and sockets test nothing that files
    /// do not.
    override func mknodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) throws(Errno) {
        if mode & S_IFMT == S_IFBLK || mode & S_IFMT == S_IFCHR { throw .notPermitted }
        try super.mknodat(directory, path, mode, device)
    }
    override func fsync(_ descriptor: Int32) throws(Errno) {}
    override func fdatasync(_ descriptor: Int32) throws(Errno) {}
    override func syncfs(_ descriptor: Int32) throws(Errno) {}
}
