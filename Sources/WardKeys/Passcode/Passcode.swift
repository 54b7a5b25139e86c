import CWardLinux
import Glibc
@_spi(_Unicode) import Swift
import WardSystem

/// A fault of a passcode as it was typed.
public enum PasscodeError: Error, Equatable, Sendable, CustomStringConvertible {
    case empty
    case tooLong(bytes: Int)
    case notUTF8
    /// Too little memory could be locked for the passcode.
    case outOfLockedMemory

    public var description: String {
        switch self {
        case .empty: "the passcode is empty"
        case .tooLong(let bytes):
            "the passcode has \(bytes) bytes, at most \(Passcode.maximumBytes) are allowed"
        case .notUTF8: "the passcode is not UTF-8 text"
        case .outOfLockedMemory: "no memory could be locked for the passcode"
        }
    }
}

/// A passcode: non-empty UTF-8 in Unicode's normalization form C, at most 1,024 bytes, in locked
/// memory.
///
/// With NFC, an "é" typed on one keyboard opens what "e" + accent on another one made. ASCII is its
/// own NFC and never leaves locked memory. Other text passes through the standard library's
/// normalizer: its `String` is in ordinary memory for some microseconds, and is then wiped in
/// place.
public struct Passcode: ~Copyable, Sendable {
    public static let maximumBytes = 1024

    private let secret: SecretBytes

    /// Takes over the bytes and trims nothing: a caller that reads a file drops its trailing
    /// newline.
    public init(utf8: consuming SecretBytes) throws(PasscodeError) {
        let count = utf8.count
        guard count > 0 else { throw .empty }
        guard count <= Passcode.maximumBytes else { throw .tooLong(bytes: count) }
        if utf8.withUnsafeBytes({ $0.allSatisfy { $0 < 0x80 } }) {
            secret = utf8
        } else {
            secret = try Passcode.normalized(utf8)
        }
    }

    private static func normalized(
        _ utf8: borrowing SecretBytes
    ) throws(PasscodeError) -> SecretBytes {
        // Canonical composition makes no scalar longer than three times its bytes (Unicode FAQ on
        // normalization).
        guard var result = try? SecretBytes(zeroed: utf8.count * 3) else {
            throw .outOfLockedMemory
        }
        let count = utf8.withUnsafeBytes { source in
            result.withUnsafeMutableBytes { normalize(source, to: $0) }
        }
        // A string of up to 15 bytes lies on the stack, and the normalizer's scalars pass through
        // there.
        ward_scrub_thread()
        guard let count else { throw .notUTF8 }
        result.shorten(to: count)
        guard count <= maximumBytes else { throw .tooLong(bytes: count) }
        return result
    }

    /// Writes the normalized bytes to `out`. Returns their number; nil where `source` is not UTF-8.
    /// Uses the standard library's normalizer, as swift-foundation does: Foundation itself would
    /// cost 20 MB. Never inlined, so that its frame is dead when the stack is scrubbed.
    @inline(never)
    private static func normalize(
        _ source: UnsafeRawBufferPointer, to out: UnsafeMutableRawBufferPointer
    ) -> Int? {
        guard var text = String(validating: source, as: UTF8.self) else { return nil }
        var count = 0
        for scalar in text._nfc {
            for byte in UTF8.encode(scalar)! {
                out[count] = byte
                count += 1
            }
        }
        // Only this variable refers to the string's storage. Zeros are valid UTF-8.
        text.withUTF8 {
            explicit_bzero(UnsafeMutableRawPointer(mutating: $0.baseAddress!), $0.count)
        }
        return count
    }

    /// Lends the normalized bytes.
    public borrowing func withSecret<R: ~Copyable, E: Error>(
        _ body: (borrowing SecretBytes) throws(E) -> R
    ) throws(E) -> R { try body(secret) }
}
