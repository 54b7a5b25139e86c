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

/// A passcode: non-empty UTF-8 in Unicode's normalization form C, at most 1,024 bytes, in locked memory.
///
/// NFC, so that "é" typed on one keyboard opens what "e" + accent of another made. ASCII is its own NFC and never
/// leaves locked memory. Anything else passes through the standard library's normalizer, whose `String` is ordinary
/// memory that is not wiped: docs/threat-model.md says so.
public struct Passcode: ~Copyable, Sendable {
    public static let maximumBytes = 1024

    private let secret: SecretBytes

    /// Takes the bytes over. Nothing is trimmed: a trailing newline of a file is the reader's to drop.
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
        let text = utf8.withUnsafeBytes { String(validating: $0, as: UTF8.self) }
        guard let text else { throw .notUTF8 }
        // The standard library's normalizer, as swift-foundation uses it: Foundation itself would cost 20 MB.
        guard var result = try? SecretBytes(zeroed: text.utf8.count * 3) else {
            throw .outOfLockedMemory
        }
        let count = result.withUnsafeMutableBytes { out in
            var count = 0
            for scalar in text._nfc {
                for byte in UTF8.encode(scalar)! {
                    out[count] = byte
                    count += 1
                }
            }
            return count
        }
        result.shorten(to: count)
        guard count <= maximumBytes else { throw .tooLong(bytes: count) }
        return result
    }

    /// Lends the normalized bytes.
    public borrowing func withSecret<R: ~Copyable, E: Error>(
        _ body: (borrowing SecretBytes) throws(E) -> R
    ) throws(E) -> R { try body(secret) }
}
