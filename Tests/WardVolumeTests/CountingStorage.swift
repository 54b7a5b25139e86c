import Glibc
import Synchronization
import WardSystem

@testable import WardVolume

/// The real backing store, which counts its calls.
final class CountingStorage: PosixStorage, @unchecked Sendable {
    // Sendable: the added state is behind a mutex.
    private let counts = Mutex<[String: Int]>([:])

    /// The calls that `body` makes: their number by name.
    func calls<E: Error>(of body: () throws(E) -> Void) throws(E) -> [String: Int] {
        counts.withLock { $0 = [:] }
        try body()
        return counts.withLock { $0 }
    }

    /// False turns off background work, so that only the calls of requests are counted.
    override func waitsForDisk(_ descriptor: Int32) -> Bool { false }

    private func note(_ function: String = #function) {
        let name = String(function.prefix { $0 != "(" })
        counts.withLock { $0[name, default: 0] += 1 }
    }

    override func openat(_ d: Int32, _ p: UnsafePointer<CChar>, _ f: Int32, mode: mode_t)
        throws(Errno) -> Int32
    {
        note()
        return try super.openat(d, p, f, mode: mode)
    }
    override func close(_ d: Int32) {
        note()
        super.close(d)
    }
    override func pread(_ d: Int32, _ b: UnsafeMutableRawPointer, _ c: Int, at o: Int)
        throws(Errno) -> Int
    {
        note()
        return try super.pread(d, b, c, at: o)
    }
    override func pwrite(_ d: Int32, _ b: UnsafeRawPointer, _ c: Int, at o: Int) throws(Errno) {
        note()
        try super.pwrite(d, b, c, at: o)
    }
    override func ftruncate(_ d: Int32, _ size: Int) throws(Errno) {
        note()
        try super.ftruncate(d, size)
    }
    override func lseek(_ d: Int32, _ o: Int, _ w: Int32) throws(Errno) -> Int {
        note()
        return try super.lseek(d, o, w)
    }
    override func fsync(_ d: Int32) throws(Errno) {
        note()
        try super.fsync(d)
    }
    override func fdatasync(_ d: Int32) throws(Errno) {
        note()
        try super.fdatasync(d)
    }
    override func fstat(_ d: Int32) throws(Errno) -> FileStatus {
        note()
        return try super.fstat(d)
    }
    override func fstatat(_ d: Int32, _ p: UnsafePointer<CChar>) throws(Errno) -> FileStatus {
        note()
        return try super.fstatat(d, p)
    }
    override func mkdirat(_ d: Int32, _ p: UnsafePointer<CChar>, _ m: mode_t) throws(Errno) {
        note()
        try super.mkdirat(d, p, m)
    }
    override func unlinkat(_ d: Int32, _ p: UnsafePointer<CChar>, _ f: Int32) throws(Errno) {
        note()
        try super.unlinkat(d, p, f)
    }
    override func renameat(
        _ a: Int32, _ b: UnsafePointer<CChar>, _ c: Int32, _ d: UnsafePointer<CChar>, flags: UInt32
    ) throws(Errno) {
        note()
        try super.renameat(a, b, c, d, flags: flags)
    }
    override func symlinkat(target: UnsafePointer<CChar>, _ d: Int32, _ p: UnsafePointer<CChar>)
        throws(Errno)
    {
        note()
        try super.symlinkat(target: target, d, p)
    }
    override func readlinkat(
        _ d: Int32, _ p: UnsafePointer<CChar>, _ b: UnsafeMutableRawPointer, _ c: Int
    ) throws(Errno) -> Int {
        note()
        return try super.readlinkat(d, p, b, c)
    }
    override func setTimes(_ d: Int32, access: timespec, modification: timespec) throws(Errno) {
        note()
        try super.setTimes(d, access: access, modification: modification)
    }
    override func getxattr(_ d: Int32, _ n: String, _ b: UnsafeMutableRawBufferPointer)
        throws(Errno) -> Int
    {
        note()
        return try super.getxattr(d, n, b)
    }
    override func setxattr(_ d: Int32, _ n: String, _ v: UnsafeRawBufferPointer, flags: Int32)
        throws(Errno)
    {
        note()
        try super.setxattr(d, n, v, flags: flags)
    }
    override func getxattrat(
        _ d: Int32, _ p: UnsafePointer<CChar>, _ n: String, _ b: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        note()
        return try super.getxattrat(d, p, n, b)
    }
    override func listxattrat(
        _ d: Int32, _ p: UnsafePointer<CChar>, _ b: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        note()
        return try super.listxattrat(d, p, b)
    }
    override func listxattr(_ d: Int32, _ b: UnsafeMutableRawBufferPointer) throws(Errno) -> Int {
        note()
        return try super.listxattr(d, b)
    }
    override func list(_ d: Int32, _ body: (DirectoryEntry) -> Void) throws(Errno) {
        note()
        try super.list(d, body)
    }
    override func entries(_ d: Int32, from offset: UInt64) throws(Errno)
        -> [(entry: DirectoryEntry, next: UInt64)]
    {
        note()
        return try super.entries(d, from: offset)
    }
    override func passEntries(_ d: Int32, from offset: UInt64) throws(Errno) -> UInt64? {
        note()
        return try super.passEntries(d, from: offset)
    }
}
