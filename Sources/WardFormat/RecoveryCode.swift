import WardSystem

/// A mistake in a recovery code as it was typed.
public enum RecoveryCodeError: Error, Equatable, Sendable, CustomStringConvertible {
    /// Group `group` (1–13) has a typing mistake.
    case mistyped(group: Int)
    /// The code has this many characters (blanks and hyphens left out); 65 are needed.
    case wrongLength(characters: Int)
    /// No memory could be locked for the code.
    case outOfLockedMemory

    public var description: String {
        switch self {
        case .mistyped(let group): "there is a typing mistake in group \(group)"
        case .wrongLength(let characters):
            "\(RecoveryCode.groups) groups of \(RecoveryCode.groupCharacters) characters are needed, "
                + "\(characters) characters were given"
        case .outOfLockedMemory: "no memory could be locked for the recovery code"
        }
    }
}

/// The 256 random bits that open a recovery kit, and their written form.
///
/// The written form is Crockford's base32 (no I, L, O, U), most significant bit first. With 4 zero
/// bits at the end it has 52 characters in 13 groups of 4. A fifth character checks each group.
///
/// Let c₀…c₃ be the values of group g (from 0) in GF(2⁵) with the polynomial x⁵ + x² + 1. The check
/// is 2·c₀ + 4·c₁ + 8·c₂ + 16·c₃ + g. It finds each single mistyped character, each exchange of two
/// characters in a group and each exchange of groups, and it names the group.
public struct RecoveryCode: ~Copyable, Sendable {
    public static let bytes = 32
    public static let groups = 13
    public static let groupCharacters = 5
    static let dataCharacters = 4
    static let alphabet: [UInt8] = Array("0123456789ABCDEFGHJKMNPQRSTVWXYZ".utf8)

    private let secret: SecretBytes

    /// Makes a fresh code. Throws `ENOMEM` where no more memory may be locked.
    public static func random() throws(Errno) -> RecoveryCode {
        RecoveryCode(try SecretBytes(random: bytes))
    }

    private init(_ secret: consuming SecretBytes) { self.secret = secret }

    /// Calls `body` with the 32 bytes.
    public borrowing func withSecret<R: ~Copyable, E: Error>(
        _ body: (borrowing SecretBytes) throws(E) -> R
    ) throws(E) -> R { try body(secret) }

    /// The written form: 13 groups joined by hyphens, 77 ASCII characters. Throws `ENOMEM`.
    public borrowing func text() throws(Errno) -> SecretBytes {
        let count = RecoveryCode.groups * (RecoveryCode.groupCharacters + 1) - 1
        var text = try SecretBytes(zeroed: count)
        text.withUnsafeMutableBytes { out in
            secret.withUnsafeBytes { bits in
                var at = 0
                for group in 0..<RecoveryCode.groups {
                    if group > 0 {
                        out[at] = UInt8(ascii: "-")
                        at += 1
                    }
                    var check = UInt8(group)
                    for place in 0..<RecoveryCode.dataCharacters {
                        let value = RecoveryCode.fiveBits(
                            of: bits, at: (group * RecoveryCode.dataCharacters + place) * 5)
                        check ^= RecoveryCode.multiply(value, by: place + 1)
                        out[at] = RecoveryCode.alphabet[Int(value)]
                        at += 1
                    }
                    out[at] = RecoveryCode.alphabet[Int(check)]
                    at += 1
                }
            }
        }
        return text
    }

    /// Reads a typed code. It may have lower case, blanks, line ends and hyphens anywhere, I and L
    /// for 1, and O for 0.
    public init(text: borrowing SecretBytes) throws(RecoveryCodeError) {
        guard var bits = try? SecretBytes(zeroed: RecoveryCode.bytes),
            var values = try? SecretBytes(
                zeroed: RecoveryCode.groups * RecoveryCode.groupCharacters)
        else { throw .outOfLockedMemory }
        let count = text.withUnsafeBytes { text in
            values.withUnsafeMutableBytes { values in
                RecoveryCode.readCharacters(text, to: values)
            }
        }
        guard count == RecoveryCode.groups * RecoveryCode.groupCharacters else {
            throw .wrongLength(characters: count)
        }
        let mistyped = values.withUnsafeBytes { values in
            bits.withUnsafeMutableBytes { RecoveryCode.assemble(values, to: $0) }
        }
        if let mistyped { throw .mistyped(group: mistyped + 1) }
        secret = bits
    }

    /// Writes the characters' values (255: not in the alphabet). Returns the number of characters,
    /// which may be larger than `values.count`.
    private static func readCharacters(
        _ text: UnsafeRawBufferPointer, to values: UnsafeMutableRawBufferPointer
    ) -> Int {
        var count = 0
        for byte in text {
            var character = byte
            if (97...122).contains(character) { character -= 32 }
            switch character {
            case 9, 10, 13, 32, 45: continue
            case UInt8(ascii: "I"), UInt8(ascii: "L"): character = UInt8(ascii: "1")
            case UInt8(ascii: "O"): character = UInt8(ascii: "0")
            default: break
            }
            if count < values.count {
                values[count] = alphabet.firstIndex(of: character).map { UInt8($0) } ?? 255
            }
            count += 1
        }
        return count
    }

    /// Checks the groups and packs the bits. Returns the first wrong group (from 0), or nil.
    private static func assemble(
        _ values: UnsafeRawBufferPointer, to bits: UnsafeMutableRawBufferPointer
    ) -> Int? {
        for group in 0..<groups {
            var check = UInt8(group)
            for place in 0..<dataCharacters {
                let value = values[group * groupCharacters + place]
                guard value < 32 else { return group }
                check ^= multiply(value, by: place + 1)
                for bit in 0..<5 where value & (16 >> UInt8(bit)) != 0 {
                    let position = (group * dataCharacters + place) * 5 + bit
                    // The last four bits are padding.
                    guard position < bytes * 8 else { return group }
                    bits[position / 8] |= 128 >> UInt8(position % 8)
                }
            }
            guard values[group * groupCharacters + dataCharacters] == check else { return group }
        }
        return nil
    }

    private static func fiveBits(of bits: UnsafeRawBufferPointer, at start: Int) -> UInt8 {
        var value: UInt8 = 0
        for position in start..<start + 5 {
            let bit =
                position < bits.count * 8 ? bits[position / 8] >> UInt8(7 - position % 8) & 1 : 0
            value = value << 1 | bit
        }
        return value
    }

    /// `value` times x to the power of `power`, in GF(2⁵).
    private static func multiply(_ value: UInt8, by power: Int) -> UInt8 {
        var result = value
        for _ in 0..<power {
            result = result << 1
            if result & 32 != 0 { result ^= 0b100101 }
        }
        return result
    }
}
