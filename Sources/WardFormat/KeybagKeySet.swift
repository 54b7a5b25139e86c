import WardSystem

/// The keys in a slot, as they are sealed:
///
/// ```
///   0  count n                    1
///   1  keys                    33·n   kind 1 ‖ key 32, ascending by kind
/// ```
///
/// Kinds 1–5 are the class keys by the class's byte (2, class B: the private half), 16 is the
/// volume key.
public struct KeybagKeySet: ~Copyable, Sendable {
    /// The groups of keys that a set can hold.
    public struct Contents: OptionSet, Sendable {
        public let rawValue: UInt8
        public init(rawValue: UInt8) { self.rawValue = rawValue }

        public static let volumeKey = Contents(rawValue: 1)
        public static let classD = Contents(rawValue: 2)
        /// The keys of A, B (private half), C and CX, which a passcode protects.
        public static let passcodeClasses = Contents(rawValue: 4)
        /// The keys of A and B (private half), which a trusted host keeps.
        public static let hostClasses = Contents(rawValue: 8)
    }

    static let volumeKeyKind: UInt8 = 16
    static let keyBytes = 32
    static let entryBytes = 33
    static let kinds: [UInt8] = ProtectionClass.allCases.map(\.rawValue).sorted() + [volumeKeyKind]

    private var keys: SecretBytes
    private var present: UInt32

    /// Makes a set without keys. Throws `ENOMEM` where no more memory may be locked.
    public init() throws(Errno) {
        keys = try SecretBytes(zeroed: KeybagKeySet.kinds.count * KeybagKeySet.keyBytes)
        present = 0
    }

    /// Makes fresh random keys of every kind. Throws `ENOMEM`.
    public static func random() throws(Errno) -> KeybagKeySet {
        var set = try KeybagKeySet()
        set.keys = try SecretBytes(random: kinds.count * keyBytes)
        for kind in kinds { set.present |= 1 << UInt32(kind) }
        return set
    }

    private static func kinds(of contents: Contents) -> [UInt8] {
        kinds.filter { kind in
            switch kind {
            case volumeKeyKind: contents.contains(.volumeKey)
            case ProtectionClass.none.rawValue: contents.contains(.classD)
            case ProtectionClass.complete.rawValue, ProtectionClass.completeUnlessOpen.rawValue:
                contents.contains(.passcodeClasses) || contents.contains(.hostClasses)
            default: contents.contains(.passcodeClasses)
            }
        }
    }

    /// Whether the set has all keys of `contents`.
    public borrowing func contains(_ contents: Contents) -> Bool {
        KeybagKeySet.kinds(of: contents).allSatisfy { present & 1 << UInt32($0) != 0 }
    }

    /// A copy of a class key (B: the private half); nil where the set does not have it. Throws
    /// `ENOMEM`.
    public borrowing func key(
        of protectionClass: ProtectionClass
    ) throws(Errno) -> SecretBytes? { try key(kind: protectionClass.rawValue) }

    /// A copy of the volume key; nil where the set does not have it. Throws `ENOMEM`.
    public borrowing func volumeKey() throws(Errno) -> SecretBytes? {
        try key(kind: KeybagKeySet.volumeKeyKind)
    }

    private borrowing func key(kind: UInt8) throws(Errno) -> SecretBytes? {
        guard present & 1 << UInt32(kind) != 0 else { return nil }
        let at = KeybagKeySet.kinds.firstIndex(of: kind)! * KeybagKeySet.keyBytes
        return try keys.slice(at..<at + KeybagKeySet.keyBytes)
    }

    /// Adds the keys of `other`. They replace keys of the same kind.
    public mutating func formUnion(_ other: borrowing KeybagKeySet) {
        for (index, kind) in KeybagKeySet.kinds.enumerated()
        where other.present & 1 << UInt32(kind) != 0 {
            let range = index * KeybagKeySet.keyBytes..<(index + 1) * KeybagKeySet.keyBytes
            other.keys.withUnsafeBytes { source in
                keys.withUnsafeMutableBytes { target in
                    target[range].copyBytes(from: source[range])
                }
            }
            present |= 1 << UInt32(kind)
        }
    }

    /// The bytes above, with the keys of `contents` only. The set must have all of them. Throws
    /// `ENOMEM`.
    public borrowing func serialized(_ contents: Contents) throws(Errno) -> SecretBytes {
        precondition(contains(contents), "a slot seals a complete set")
        let chosen = KeybagKeySet.kinds(of: contents)
        var result = try SecretBytes(zeroed: 1 + chosen.count * KeybagKeySet.entryBytes)
        result.withUnsafeMutableBytes { out in
            out[0] = UInt8(chosen.count)
            var at = 1
            for kind in chosen {
                let from = KeybagKeySet.kinds.firstIndex(of: kind)! * KeybagKeySet.keyBytes
                out[at] = kind
                keys.withUnsafeBytes {
                    out[at + 1..<at + KeybagKeySet.entryBytes].copyBytes(
                        from: $0[from..<from + KeybagKeySet.keyBytes])
                }
                at += KeybagKeySet.entryBytes
            }
        }
        return result
    }

    /// Reads the bytes that `serialized` made. Throws `FormatError` `malformed`, also for unknown
    /// kinds and a wrong order.
    public init(reading source: borrowing SecretBytes) throws(FormatError) {
        guard var read = try? SecretBytes(zeroed: KeybagKeySet.kinds.count * KeybagKeySet.keyBytes)
        else { throw FormatError(.malformed, "no memory could be locked for a key set") }
        let count = source.count
        var found: UInt32 = 0
        let ok = source.withUnsafeBytes { bytes in
            guard count >= 1, count == 1 + Int(bytes[0]) * KeybagKeySet.entryBytes else {
                return false
            }
            var previous = 0
            for entry in 0..<Int(bytes[0]) {
                let at = 1 + entry * KeybagKeySet.entryBytes
                guard let index = KeybagKeySet.kinds.firstIndex(of: bytes[at]),
                    Int(bytes[at]) > previous
                else { return false }
                previous = Int(bytes[at])
                found |= 1 << UInt32(bytes[at])
                read.withUnsafeMutableBytes { target in
                    target[index * KeybagKeySet.keyBytes..<(index + 1) * KeybagKeySet.keyBytes]
                        .copyBytes(from: bytes[at + 1..<at + KeybagKeySet.entryBytes])
                }
            }
            return true
        }
        guard ok else { throw FormatError(.malformed, "keybag: a sealed set is malformed") }
        keys = read
        present = found
    }
}
