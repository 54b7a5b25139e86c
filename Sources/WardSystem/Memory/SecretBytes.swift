import CWardLinux
import Glibc

/// Secret bytes with one owner, in locked memory (`SecretHeap`), wiped when the owner goes.
///
/// They can't be copied implicitly, printed or turned into an array; a closure borrows them.
/// Functions take a secret `borrowing`, so that there is no second copy.
public struct SecretBytes: ~Copyable, @unchecked Sendable {
    // Sendable: the memory has one owner, and mutation needs `mutating` or `inout` access to it.
    private let base: UnsafeMutableRawPointer
    private let capacity: Int
    /// The number of secret bytes; at most the capacity asked for at creation.
    public private(set) var count: Int

    /// `count` zero bytes. Throws `ENOMEM` where no more memory may be locked (`RLIMIT_MEMLOCK`).
    public init(zeroed count: Int) throws(Errno) {
        base = try SecretHeap.shared.allocate(count)
        capacity = count
        self.count = count
    }

    /// `count` bytes from the kernel's random generator, getrandom(2).
    public init(random count: Int) throws(Errno) {
        try self.init(zeroed: count)
        SystemRandom.fill(UnsafeMutableRawBufferPointer(start: base, count: count))
    }

    /// A copy of `bytes`; the caller wipes the original.
    public init(copying bytes: UnsafeRawBufferPointer) throws(Errno) {
        try self.init(zeroed: bytes.count)
        if let source = bytes.baseAddress { base.copyMemory(from: source, byteCount: bytes.count) }
    }

    /// Lends the bytes; the pointer is not valid afterwards.
    public borrowing func withUnsafeBytes<R: ~Copyable, E: Error>(
        _ body: (UnsafeRawBufferPointer) throws(E) -> R
    ) throws(E) -> R {
        try body(UnsafeRawBufferPointer(start: base, count: count))
    }

    /// Lends the bytes for writing; the pointer is not valid afterwards.
    public mutating func withUnsafeMutableBytes<R: ~Copyable, E: Error>(
        _ body: (UnsafeMutableRawBufferPointer) throws(E) -> R
    ) throws(E) -> R {
        try body(UnsafeMutableRawBufferPointer(start: base, count: count))
    }

    /// Forgets and wipes everything after the first `newCount` bytes.
    public mutating func shorten(to newCount: Int) {
        precondition(newCount >= 0 && newCount <= count, "a secret only gets shorter")
        explicit_bzero(base + newCount, count - newCount)
        count = newCount
    }

    /// An independent copy with an owner of its own.
    public borrowing func copy() throws(Errno) -> SecretBytes {
        try SecretBytes(copying: UnsafeRawBufferPointer(start: base, count: count))
    }

    /// A secret of the bytes `range` of this one.
    public borrowing func slice(_ range: Range<Int>) throws(Errno) -> SecretBytes {
        precondition(range.lowerBound >= 0 && range.upperBound <= count, "slice out of range")
        return try SecretBytes(
            copying: UnsafeRawBufferPointer(start: base + range.lowerBound, count: range.count))
    }

    deinit {
        SecretHeap.shared.deallocate(base, capacity)
    }
}
