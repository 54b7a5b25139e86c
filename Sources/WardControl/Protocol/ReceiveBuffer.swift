import CWardLinux
import Glibc
import WardSystem

/// Bytes that a client sent and the server has not handled yet, in locked memory because they may
/// hold a passcode.
///
/// An empty buffer holds no memory, so idle clients use nothing of `RLIMIT_MEMLOCK`.
struct ReceiveBuffer: ~Copyable {
    static let initialBytes = 4096
    /// The longest message with its zero byte.
    static let maximumBytes = 65536

    private var storage: SecretBytes?
    private var filledBytes = 0
    /// The bytes before this contain no zero byte.
    private var scannedBytes = 0

    /// The locked memory held now, bytes.
    var capacityBytes: Int {
        switch storage {
        case .some(let storage): storage.count
        case .none: 0
        }
    }

    /// The locked memory of a buffer above the initial size, bytes; 0 for others.
    var grownBytes: Int { capacityBytes > ReceiveBuffer.initialBytes ? capacityBytes : 0 }

    var isEmpty: Bool { filledBytes == 0 }

    /// Whether another `receive` has to grow the buffer.
    var isFull: Bool { filledBytes == capacityBytes }

    /// The size after growing, bytes; nil at the limit.
    var nextCapacityBytes: Int? {
        switch capacityBytes {
        case 0: ReceiveBuffer.initialBytes
        case ReceiveBuffer.maximumBytes...: nil
        default: min(capacityBytes * 4, ReceiveBuffer.maximumBytes)
        }
    }

    /// Takes the bytes that are there, without waiting. Returns their number, 0 at the end of the
    /// stream. Throws `EMSGSIZE` for a message that is too long, `EAGAIN` where no byte is there,
    /// and `ENOMEM` where no more memory can be locked.
    mutating func receive(from socket: Int32) throws(Errno) -> Int {
        if isFull { try grow() }
        let at = filledBytes
        var result: Result<Int, Errno> = .success(0)
        storage?.withUnsafeMutableBytes { bytes in
            do throws(Errno) {
                result = .success(
                    try Syscall.check {
                        recv(socket, bytes.baseAddress! + at, bytes.count - at, Int32(MSG_DONTWAIT))
                    })
            } catch {
                result = .failure(error)
            }
        }
        do throws(Errno) {
            filledBytes += try result.get()
        } catch {
            if isEmpty { storage = nil }
            throw error
        }
        return filledBytes - at
    }

    private mutating func grow() throws(Errno) {
        guard let capacity = nextCapacityBytes else { throw Errno(rawValue: EMSGSIZE) }
        var larger = try SecretBytes(zeroed: capacity)
        let count = filledBytes
        storage?.withUnsafeBytes { old in
            larger.withUnsafeMutableBytes {
                $0.baseAddress!.copyMemory(from: old.baseAddress!, byteCount: count)
            }
        }
        storage = consume larger
    }

    /// Lends the next whole message, without its zero byte, to `body`, then wipes it. Nil where
    /// none is complete.
    mutating func takeMessage<R>(_ body: (UnsafeMutableRawBufferPointer) -> R) -> R? {
        let scanned = scannedBytes
        let filled = filledBytes
        var remaining = filled
        let result: R?? = storage?.withUnsafeMutableBytes { bytes -> R? in
            let base = bytes.baseAddress!
            guard let found = memchr(base + scanned, 0, filled - scanned) else { return nil }
            let count = found - base
            let result = body(UnsafeMutableRawBufferPointer(start: base, count: count))
            remaining = filled - count - 1
            memmove(base, base + count + 1, remaining)
            explicit_bzero(base + remaining, bytes.count - remaining)
            return result
        }
        guard let result, let result else {
            scannedBytes = filledBytes
            return nil
        }
        filledBytes = remaining
        scannedBytes = 0
        if remaining == 0 { storage = nil }
        return result
    }

    /// Lends all of its memory, for tests.
    func withStorage<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R? {
        switch storage {
        case .some(let storage): storage.withUnsafeBytes { body($0) }
        case .none: nil
        }
    }
}
