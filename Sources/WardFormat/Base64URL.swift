/// Encodes bytes as base64url without padding, RFC 4648 §5. Names on disk use it: letters, digits,
/// `-`, `_`; no dot, no slash.
public enum Base64URL {
    public static let alphabet: [UInt8] = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    static let values: [Int8] = {
        var table = [Int8](repeating: -1, count: 256)
        for (value, byte) in alphabet.enumerated() { table[Int(byte)] = Int8(value) }
        return table
    }()

    /// Whether `byte` is in the alphabet.
    public static func isCharacter(_ byte: UInt8) -> Bool { values[Int(byte)] >= 0 }

    /// The number of characters for `count` bytes.
    public static func encodedCount(_ count: Int) -> Int { (count * 4 + 2) / 3 }
    /// The number of bytes in `count` characters. A remainder of 1 is impossible and counts as 0.
    public static func decodedCount(_ count: Int) -> Int { count * 3 / 4 }

    /// Writes `encodedCount(source.count)` characters.
    public static func encode(_ source: UnsafeRawBufferPointer, to out: UnsafeMutablePointer<UInt8>)
    {
        alphabet.withUnsafeBufferPointer { alphabet in
            var at = 0
            var index = 0
            while index + 3 <= source.count {
                let bits =
                    UInt32(source[index]) << 16 | UInt32(source[index + 1]) << 8
                    | UInt32(source[index + 2])
                out[at] = alphabet[Int(bits >> 18)]
                out[at + 1] = alphabet[Int(bits >> 12 & 63)]
                out[at + 2] = alphabet[Int(bits >> 6 & 63)]
                out[at + 3] = alphabet[Int(bits & 63)]
                index += 3
                at += 4
            }
            if source.count - index == 1 {
                let bits = UInt32(source[index]) << 16
                out[at] = alphabet[Int(bits >> 18)]
                out[at + 1] = alphabet[Int(bits >> 12 & 63)]
            } else if source.count - index == 2 {
                let bits = UInt32(source[index]) << 16 | UInt32(source[index + 1]) << 8
                out[at] = alphabet[Int(bits >> 18)]
                out[at + 1] = alphabet[Int(bits >> 12 & 63)]
                out[at + 2] = alphabet[Int(bits >> 6 & 63)]
            }
        }
    }

    /// The text for `bytes`.
    public static func encode(_ bytes: [UInt8]) -> String {
        String(unsafeUninitializedCapacity: encodedCount(bytes.count)) { out in
            bytes.withUnsafeBytes { encode($0, to: out.baseAddress!) }
            return encodedCount(bytes.count)
        }
    }

    /// Writes `decodedCount(source.count)` bytes. Returns false if a character is not in the
    /// alphabet, or if `encode` would write other characters: one name has one encoding.
    public static func decode(_ source: UnsafeRawBufferPointer, to out: UnsafeMutablePointer<UInt8>)
        -> Bool
    {
        if source.count % 4 == 1 { return false }
        return values.withUnsafeBufferPointer { values in
            var bits: UInt32 = 0
            var bitCount = 0
            var at = 0
            for byte in source {
                let value = values[Int(byte)]
                if value < 0 { return false }
                bits = bits << 6 | UInt32(value)
                bitCount += 6
                if bitCount >= 8 {
                    bitCount -= 8
                    out[at] = UInt8(truncatingIfNeeded: bits >> UInt32(bitCount))
                    at += 1
                }
                bits &= 0xFFFF
            }
            return bits & ((1 << UInt32(bitCount)) - 1) == 0
        }
    }

    /// The bytes of `text`; nil where the other `decode` returns false.
    public static func decode(_ text: some StringProtocol) -> [UInt8]? {
        let source = Array(text.utf8)
        var ok = false
        let bytes = [UInt8](unsafeUninitializedCapacity: decodedCount(source.count)) { out, count in
            ok = source.withUnsafeBytes { decode($0, to: out.baseAddress!) }
            count = decodedCount(source.count)
        }
        return ok ? bytes : nil
    }
}
