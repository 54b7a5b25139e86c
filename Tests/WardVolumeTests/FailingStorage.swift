import CWardLinux
import Foundation
import Glibc
import WardSystem

@testable import WardVolume

/// The real backing store with faults: its n-th change or call fails, with `ENOSPC` after a part of
/// a write. It can also vanish for a while, or answer a read in several parts.
final class FailingStorage: Storage, @unchecked Sendable {
    private let real = PosixStorage()
    private let lock = NSLock()
    private var countdown = Int.max
    private var error = Errno.noSpace
    private var failsAlways = false
    private var badOffset: Int?
    private var callCountdown = Int.max
    private var callError = Errno.ioError
    private var callsFailOn = false
    private var absence: Errno?
    private var shortCountdown = Int.max
    private var shortBytes = 1
    private var answers = 0
    private var hook: (@Sendable (String) -> Void)?
    private var openError: Errno?
    private var knowsRenameFlags = true
    private var knowsHoles = true
    private var keepsOrder = true
    private var statusHook: (@Sendable (FileStatus) -> Void)?
    private var attributeHook: (@Sendable () -> Void)?
    private var placeHook: (@Sendable () -> Void)?
    private var readLinkHook: (@Sendable () -> Void)?
    private var makeDirectoryHook: (@Sendable () -> Void)?

    /// From now on opening a file (not a directory) fails; nil: it works again.
    func failOpening(_ error: Errno?) { lock.withLock { openError = error } }

    /// From now on renames with flags fail with EINVAL, as on some NFS and FUSE stores.
    func forgetRenameFlags() { lock.withLock { knowsRenameFlags = false } }

    /// From now on the store can't make holes, like some network and FUSE stores.
    func forgetHoles() { lock.withLock { knowsHoles = false } }

    /// From now on the store does not keep changes of names in order.
    func forgetOrder() { lock.withLock { keepsOrder = false } }

    /// `hook` is called with the name of each change before it is made.
    func onChange(_ hook: (@Sendable (String) -> Void)?) { lock.withLock { self.hook = hook } }

    /// `hook` is called with the status of each name before it is returned.
    func onStatus(_ hook: (@Sendable (FileStatus) -> Void)?) {
        lock.withLock { statusHook = hook }
    }

    /// `hook` is called before each directory is made.
    func onMakeDirectory(_ hook: (@Sendable () -> Void)?) {
        lock.withLock { makeDirectoryHook = hook }
    }

    /// `hook` is called before an attribute is read by a file's name.
    func onAttributeByName(_ hook: (@Sendable () -> Void)?) {
        lock.withLock { attributeHook = hook }
    }
    /// `hook` is called before a file is opened as a place alone (`O_PATH`).
    func onOpenPlace(_ hook: (@Sendable () -> Void)?) { lock.withLock { placeHook = hook } }
    /// `hook` is called before each symbolic link is read.
    func onReadLink(_ hook: (@Sendable () -> Void)?) { lock.withLock { readLinkHook = hook } }

    /// From now on reads that cover this offset of any file fail, as with a bad block.
    func spoil(offset: Int?) { lock.withLock { badOffset = offset } }

    /// The `n`-th change from now (0: the next one) fails, once.
    func failAfter(_ n: Int, _ error: Errno) {
        lock.withLock {
            countdown = n
            self.error = error
        }
    }

    /// Every change from now on fails.
    func failAlways(_ error: Errno) {
        lock.withLock {
            countdown = -1
            failsAlways = true
            self.error = error
        }
    }

    /// The `n`-th call from now (0: the next one) fails, calls that change nothing included; with
    /// `andLater` all later ones fail, too.
    func failCall(_ n: Int, _ error: Errno, andLater: Bool = false) {
        lock.withLock {
            callCountdown = n
            callError = error
            callsFailOn = andLater
        }
    }

    /// The `n`-th pread(2) from now (0: the next one) returns at most `bytes` bytes.
    func shortenAnswer(_ n: Int, to bytes: Int) {
        lock.withLock {
            shortCountdown = n
            shortBytes = bytes
        }
    }

    /// Whether the short answer was given. After this call no answer is shortened.
    func wasShortened() -> Bool {
        lock.withLock {
            defer { shortCountdown = Int.max }
            return shortCountdown < 0
        }
    }

    /// The number of pread(2) calls.
    var readCalls: Int { lock.withLock { answers } }

    /// Every call fails, calls that change nothing included; nil: the store is back.
    func vanish(_ error: Errno?) { lock.withLock { absence = error } }

    /// Whether the requested failure has happened.
    var hasFailed: Bool { lock.withLock { countdown < 0 || callCountdown < 0 } }

    /// While this is locked, writes hang as on a disk that does not answer.
    let hang = NSLock()
    private var hangHook: (@Sendable () -> Void)?

    /// `hook` is called by each write before it waits for `hang`.
    func onHang(_ hook: @escaping @Sendable () -> Void) { lock.withLock { hangHook = hook } }

    func stop() {
        lock.withLock {
            countdown = Int.max
            callCountdown = Int.max
            failsAlways = false
        }
    }

    /// Comes before every call but `close`, and throws its failure.
    private func call() throws(Errno) {
        let failure: Errno? = lock.withLock {
            if let absence { return absence }
            if callCountdown < 0 { return callsFailOn ? callError : nil }
            if callCountdown == Int.max { return nil }
            callCountdown -= 1
            return callCountdown < 0 ? callError : nil
        }
        if let failure { throw failure }
    }

    private func change(_ name: String = #function) throws(Errno) {
        try call()
        let hook = lock.withLock { self.hook }
        if let hook { asAnotherThread { hook(String(name.prefix { $0 != "(" })) } }
        let failure: Errno? = lock.withLock {
            if failsAlways { return error }
            if countdown < 0 || countdown == Int.max { return nil }
            countdown -= 1
            return countdown < 0 ? error : nil
        }
        if let failure { throw failure }
    }

    func pwrite(_ d: Int32, _ b: UnsafeRawPointer, _ count: Int, at offset: Int) throws(Errno) {
        lock.withLock { hangHook }?()
        hang.lock()
        hang.unlock()
        do throws(Errno) {
            try change()
        } catch {
            // A full disk takes the first blocks.
            let part = (count / 2) & ~4095
            if error == .noSpace, part > 0 { try real.pwrite(d, b, part, at: offset) }
            throw error
        }
        try real.pwrite(d, b, count, at: offset)
    }
    func ftruncate(_ d: Int32, _ size: Int) throws(Errno) {
        try change()
        try real.ftruncate(d, size)
    }
    func fallocate(_ d: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int) throws(Errno) {
        if mode & FALLOC_FL_PUNCH_HOLE != 0, !lock.withLock({ knowsHoles }) { throw .notSupported }
        try change()
        try real.fallocate(d, mode: mode, offsetBytes: offsetBytes, lengthBytes: lengthBytes)
    }
    func openat(_ d: Int32, _ p: UnsafePointer<CChar>, _ f: Int32, mode: mode_t) throws(Errno)
        -> Int32
    {
        if f & O_CREAT != 0 { try change() }
        if f & O_CREAT == 0 { try call() }
        if f & 0o10000000 /* O_PATH */ != 0 { lock.withLock { placeHook }?() }
        if let refusal = lock.withLock({ openError }), f & O_DIRECTORY == 0 { throw refusal }
        return try real.openat(d, p, f, mode: mode)
    }
    func mkdirat(_ d: Int32, _ p: UnsafePointer<CChar>, _ m: mode_t) throws(Errno) {
        lock.withLock { makeDirectoryHook }?()
        try change()
        try real.mkdirat(d, p, m)
    }
    func mknodat(_ d: Int32, _ p: UnsafePointer<CChar>, _ m: mode_t, _ v: dev_t) throws(Errno) {
        try change()
        try real.mknodat(d, p, m, v)
    }
    func unlinkat(_ d: Int32, _ p: UnsafePointer<CChar>, _ f: Int32) throws(Errno) {
        try change()
        try real.unlinkat(d, p, f)
    }
    func renameat(
        _ a: Int32, _ b: UnsafePointer<CChar>, _ c: Int32, _ d: UnsafePointer<CChar>, flags: UInt32
    ) throws(Errno) {
        try change()
        if flags != 0, !lock.withLock({ knowsRenameFlags }) { throw .invalidArgument }
        try real.renameat(a, b, c, d, flags: flags)
    }
    func linkat(_ a: Int32, _ b: UnsafePointer<CChar>, _ c: Int32, _ d: UnsafePointer<CChar>)
        throws(Errno)
    {
        try change()
        try real.linkat(a, b, c, d)
    }
    func linkDescriptor(_ a: Int32, _ c: Int32, _ d: UnsafePointer<CChar>) throws(Errno) {
        try change()
        try real.linkDescriptor(a, c, d)
    }
    func symlinkat(target: UnsafePointer<CChar>, _ d: Int32, _ p: UnsafePointer<CChar>)
        throws(Errno)
    {
        try change()
        try real.symlinkat(target: target, d, p)
    }
    func chmod(_ d: Int32, _ m: mode_t) throws(Errno) {
        try change()
        try real.chmod(d, m)
    }
    func chown(_ d: Int32, _ u: uid_t, _ g: gid_t) throws(Errno) {
        try change()
        try real.chown(d, u, g)
    }
    func setTimes(_ d: Int32, access: timespec, modification: timespec) throws(Errno) {
        try change()
        try real.setTimes(d, access: access, modification: modification)
    }
    func setxattr(_ d: Int32, _ n: String, _ v: UnsafeRawBufferPointer, flags: Int32) throws(Errno)
    {
        try change()
        try real.setxattr(d, n, v, flags: flags)
    }
    func removexattr(_ d: Int32, _ n: String) throws(Errno) {
        try change()
        try real.removexattr(d, n)
    }
    func forgetCached(_ d: Int32) { real.forgetCached(d) }
    func fsync(_ d: Int32) throws(Errno) {
        try change()
        try real.fsync(d)
    }
    func fdatasync(_ d: Int32) throws(Errno) {
        try change()
        try real.fdatasync(d)
    }
    func syncfs(_ d: Int32) throws(Errno) {
        try change()
        try real.syncfs(d)
    }
    func close(_ d: Int32) { real.close(d) }
    func pread(_ d: Int32, _ b: UnsafeMutableRawPointer, _ c: Int, at o: Int) throws(Errno) -> Int {
        try call()
        if let bad = lock.withLock({ badOffset }), (o..<o + c).contains(bad) { throw .ioError }
        // Reads as `PosixStorage` does, with this class as the kernel.
        return try Syscall.readWhole(c) { done throws(Errno) in
            let most = self.answer(c - done)
            return try Syscall.check { Glibc.pread(d, b + done, most, o + done) }
        }
    }
    /// The most bytes of `count` that the next pread(2) returns.
    private func answer(_ count: Int) -> Int {
        lock.withLock {
            answers += 1
            guard shortCountdown >= 0, shortCountdown < Int.max else { return count }
            shortCountdown -= 1
            return shortCountdown < 0 ? min(count, shortBytes) : count
        }
    }
    func lseek(_ d: Int32, _ o: Int, _ w: Int32) throws(Errno) -> Int {
        try call()
        return try real.lseek(d, o, w)
    }
    func fstat(_ d: Int32) throws(Errno) -> FileStatus {
        try call()
        return try real.fstat(d)
    }
    func fstatat(_ d: Int32, _ p: UnsafePointer<CChar>) throws(Errno) -> FileStatus {
        try call()
        let status = try real.fstatat(d, p)
        lock.withLock { statusHook }?(status)
        return status
    }
    func ordersChanges(_ d: Int32) -> Bool { lock.withLock { keepsOrder } }
    func coarseNanoseconds() -> UInt64 { real.coarseNanoseconds() }
    func fstatvfs(_ d: Int32) throws(Errno) -> FileSystemStatus {
        try call()
        return try real.fstatvfs(d)
    }
    func readlinkat(
        _ d: Int32, _ p: UnsafePointer<CChar>, _ b: UnsafeMutableRawPointer, _ c: Int
    ) throws(Errno) -> Int {
        try call()
        lock.withLock { readLinkHook }?()
        return try real.readlinkat(d, p, b, c)
    }
    func getxattr(_ d: Int32, _ n: String, _ b: UnsafeMutableRawBufferPointer) throws(Errno) -> Int
    {
        try call()
        return try real.getxattr(d, n, b)
    }
    func getxattrat(
        _ d: Int32, _ p: UnsafePointer<CChar>, _ n: String, _ b: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try call()
        lock.withLock { attributeHook }?()
        return try real.getxattrat(d, p, n, b)
    }
    func listxattrat(
        _ d: Int32, _ p: UnsafePointer<CChar>, _ b: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try call()
        return try real.listxattrat(d, p, b)
    }
    func listxattr(_ d: Int32, _ b: UnsafeMutableRawBufferPointer) throws(Errno) -> Int {
        try call()
        return try real.listxattr(d, b)
    }
    func list(_ d: Int32, _ body: (DirectoryEntry) -> Void) throws(Errno) {
        try call()
        try real.list(d, body)
    }
}
