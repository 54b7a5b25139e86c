import WardCrypto

/// One way to get class keys: a complete set of them, sealed by itself.
///
/// ```
///   0  kind                       1   1 device, 2 passcode
///   1  zero                       1
///   2  length of parameters p     2   device 0, passcode 40
///   4  length of sealed set s     2
///   6  parameters                 p   passcode: scrypt's (`PasscodeDerivation`)
/// 6+p  sealed set                 s   nonce 12 ‖ ciphertext ‖ tag 16, AES-256-GCM
/// ```
///
/// Associated data of the seal: the keybag's identity (52 bytes) ‖ bytes 0–1 of the slot ‖
/// parameters. In version 2 the keybag's version (2 bytes) comes before it. So a slot of version 2
/// opens in no keybag that says version 1. The set is a `KeybagKeySet`.
public struct KeybagSlot: Equatable, Sendable {
    public enum Kind: UInt8, Sendable {
        case device = 1
        case passcode = 2
    }

    /// The limits of a sealed set: at most six keys, and room for additions of later versions.
    static let maximumSealedBytes = 1024
    static let minimumSealedBytes = AEADContext.nonceBytes + AEADContext.tagBytes

    public var kind: Kind
    /// For a passcode slot, how its key is derived.
    public var derivation: PasscodeDerivation?
    /// The sealed set of keys.
    public var sealed: [UInt8]

    public init(kind: Kind, derivation: PasscodeDerivation? = nil, sealed: [UInt8]) {
        precondition((kind == .passcode) == (derivation != nil))
        precondition(sealed.count <= KeybagSlot.maximumSealedBytes)
        self.kind = kind
        self.derivation = derivation
        self.sealed = sealed
    }

    /// The data that a slot's seal authenticates beside the set.
    public static func associatedData(
        _ identity: KeybagIdentity, format: VolumeFormat, kind: Kind,
        derivation: PasscodeDerivation?
    ) -> [UInt8] {
        var writer = KeybagWriter()
        if format > .version1 { writer.append(format.rawValue) }
        identity.write(to: &writer)
        writer.append([kind.rawValue, 0])
        writer.append(derivation?.serialized ?? [])
        return writer.bytes
    }

    func write(to writer: inout KeybagWriter) {
        let parameters = derivation?.serialized ?? []
        writer.append([kind.rawValue, 0])
        writer.append(UInt16(parameters.count))
        writer.append(UInt16(sealed.count))
        writer.append(parameters)
        writer.append(sealed)
    }

    init(from reader: inout KeybagReader) throws(FormatError) {
        let number = try reader.integer(UInt8.self, "slot kind")
        guard let kind = Kind(rawValue: number) else {
            throw FormatError(.malformed, "keybag: slot of unknown kind \(number)")
        }
        try reader.zeros(1, "reserved field of a slot")
        let parameterBytes = Int(try reader.integer(UInt16.self, "slot"))
        let sealedBytes = Int(try reader.integer(UInt16.self, "slot"))
        guard parameterBytes == (kind == .passcode ? PasscodeDerivation.bytes : 0),
            (KeybagSlot.minimumSealedBytes...KeybagSlot.maximumSealedBytes).contains(sealedBytes)
        else { throw FormatError(.malformed, "keybag: impossible lengths in a slot") }
        self.kind = kind
        derivation = kind == .passcode ? try PasscodeDerivation(from: &reader) : nil
        sealed = try reader.take(sealedBytes, "sealed set")
    }
}

/// The parameters of scrypt (RFC 7914) for a passcode.
///
/// ```
///   0  algorithm (1: scrypt)      1
///   1  log2 of N                  1   10 to 24
///   2  r                          2   1 to 64
///   4  p                          2   1 to 64
///   6  zero                       2
///   8  salt                      32
/// ```
public struct PasscodeDerivation: Equatable, Sendable {
    public static let bytes = 40
    public static let saltBytes = 32
    /// The limit of the memory that a keybag makes its reader use: 128 · N · r bytes.
    public static let maximumMemoryBytes: UInt64 = 4 << 30

    public var cost: Scrypt.Parameters
    public var salt: [UInt8]

    public init(cost: Scrypt.Parameters, salt: [UInt8]) {
        precondition(salt.count == PasscodeDerivation.saltBytes)
        precondition(PasscodeDerivation.isPossible(cost), "scrypt cost out of range")
        self.cost = cost
        self.salt = salt
    }

    /// Whether a keybag may hold this cost.
    public static func isPossible(_ cost: Scrypt.Parameters) -> Bool {
        cost.n.nonzeroBitCount == 1 && (10...24).contains(cost.n.trailingZeroBitCount)
            && (1...64).contains(cost.r) && (1...64).contains(cost.p)
            && 128 * cost.n * cost.r <= maximumMemoryBytes
    }

    public var serialized: [UInt8] {
        var writer = KeybagWriter()
        PasscodeDerivation.write(cost, to: &writer)
        writer.append(salt)
        return writer.bytes
    }

    init(from reader: inout KeybagReader) throws(FormatError) {
        cost = try PasscodeDerivation.readCost(from: &reader)
        salt = try reader.take(PasscodeDerivation.saltBytes, "salt")
    }

    /// Writes the first 8 bytes above.
    static func write(_ cost: Scrypt.Parameters, to writer: inout KeybagWriter) {
        writer.append([1, UInt8(cost.n.trailingZeroBitCount)])
        writer.append(UInt16(cost.r))
        writer.append(UInt16(cost.p))
        writer.append(UInt16(0))
    }

    static func readCost(
        from reader: inout KeybagReader
    ) throws(FormatError) -> Scrypt.Parameters {
        let algorithm = try reader.integer(UInt8.self, "passcode derivation")
        let logN = try reader.integer(UInt8.self, "scrypt N")
        let r = UInt64(try reader.integer(UInt16.self, "scrypt r"))
        let p = UInt64(try reader.integer(UInt16.self, "scrypt p"))
        try reader.zeros(2, "reserved field of a derivation")
        guard algorithm == 1, logN < 32 else {
            throw FormatError(.malformed, "keybag: unknown passcode derivation")
        }
        let cost = Scrypt.Parameters(n: 1 << UInt64(logN), r: r, p: p)
        guard isPossible(cost) else {
            throw FormatError(.malformed, "keybag: scrypt cost out of range")
        }
        return cost
    }
}
