import CWardLinux
import Glibc
@_spi(_Unicode) import Swift
import WardSystem

/// What is wrong with a passcode as it was typed.
public enum PasscodeError: Error, Equatable, Sendable, CustomStringConvertible {
    case empty
    case tooLong(bytes: Int)
    case notUTF8
    /// No memory could be locked for it.
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
/// NFC, so that "é" typed on one keyboard opens what "e" + accent of another made. ASCII is its own
/// NFC and never leaves locked memory. Anything else passes through the standard library's
/// normalizer, whose `String` is ordinary memory, for some microseconds, and is wiped where it
/// lies.
public struct Passcode: ~Copyable, Sendable {
    public static let maximumBytes = 1024

    private let secret: SecretBytes

    /// Takes the bytes over. Nothing is trimmed: a trailing newline of a file is the reader's to
    /// drop.
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
        // No scalar's canonical composition has more than three times the bytes (Unicode FAQ on
        // normalization).
        guard var result = try? SecretBytes(zeroed: utf8.count * 3) else {
            throw .outOfLockedMemory
        }
        let count = utf8.withUnsafeBytes { source in
            result.withUnsafeMutableBytes { normalize(source, to: $0) }
        }
        // A string of up to 15 bytes lies on the stack, and the normalizer's letters pass through
        // it.
        ward_scrub_thread()
        guard let count else { throw .notUTF8 }
        result.shorten(to: count)
        guard count <= maximumBytes else { throw .tooLong(bytes: count) }
        return result
    }

    /// The number of bytes; nil where `source` is not UTF-8. The standard library's normalizer, as
    /// swift-foundation uses it: Foundation itself would cost 20 MB. Never inlined, so that its
    /// frame is dead when the stack is scrubbed.
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
        // The string's own storage, which nobody else refers to any more: zeros are UTF-8 too.
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
