import WardSystem

/// Hexadecimal digits for secrets in messages. The secrets stay in locked memory.
public enum HexSecret {
    /// Two lower-case digits for each byte. Throws `ENOMEM`.
    public static func encode(_ secret: borrowing SecretBytes) throws(Errno) -> SecretBytes {
        var text = try SecretBytes(zeroed: secret.count * 2)
        secret.withUnsafeBytes { bytes in
            text.withUnsafeMutableBytes { out in
                for (index, byte) in bytes.enumerated() {
                    out[index * 2] = digit(byte >> 4)
                    out[index * 2 + 1] = digit(byte & 15)
                }
            }
        }
        return text
    }

    /// Nil where the text is not an even number of hexadecimal digits. Throws `ENOMEM`.
    public static func decode(_ text: borrowing SecretBytes) throws(Errno) -> SecretBytes? {
        guard text.count % 2 == 0 else { return nil }
        var secret = try SecretBytes(zeroed: text.count / 2)
        let isRight = text.withUnsafeBytes { digits in
            secret.withUnsafeMutableBytes { out in
                for index in out.indices {
                    guard let high = value(digits[index * 2]),
                        let low = value(digits[index * 2 + 1])
                    else { return false }
                    out[index] = high << 4 | low
                }
                return true
            }
        }
        if isRight { return secret }
        return nil
    }

    /// Two lower-case digits for each byte, for bytes that are no secret.
    public static func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.flatMap { [digit($0 >> 4), digit($0 & 15)] }, as: UTF8.self)
    }

    /// The bytes of hexadecimal digits, for bytes that are no secret; nil for other text.
    public static func bytes(_ text: String) -> [UInt8]? {
        let digits = text.utf8.map { value($0) }
        guard digits.count % 2 == 0, !digits.contains(nil) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0]! << 4 | digits[$0 + 1]! }
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") - 10 + value
    }

    private static func value(_ digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
