import WardSystem

/// The bytes of hexadecimal digits; blanks are skipped.
func hex(_ text: String) -> [UInt8] {
    let digits = text.filter { !$0.isWhitespace }.map { UInt8($0.hexDigitValue!) }
    return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
}

func secret(_ bytes: [UInt8]) throws -> SecretBytes {
    var result = try SecretBytes(zeroed: bytes.count)
    result.withUnsafeMutableBytes { $0.copyBytes(from: bytes) }
    return result
}

extension SecretBytes {
    /// The bytes, for comparison in tests.
    borrowing func exposed() -> [UInt8] { withUnsafeBytes { [UInt8]($0) } }
}
