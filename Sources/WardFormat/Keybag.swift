import WardCrypto

/// `ward.keybag`, and its copy `ward.keybag.copy`, in the root of a volume.
///
/// ```
///   0  magic "WARDKBAG"           8
///   8  version (1 or 2)           2   that of the volume's format
///  10  identity                  52   never changes (`KeybagIdentity`)
///  62  generation                 8   each write of the keybag adds one
///  70  slot count                 1   1: device; 2: device, passcode
///  71  zero                       1
///  72  slots                          (`KeybagSlot`)
///  ..  length of sealed policy    2
///  ..  sealed policy                  nonce 12 ‖ ciphertext ‖ tag 16, AES-256-GCM, policy key
///  ..  SHA-256                   32   of everything before it
/// ```
///
/// The associated data of the policy's seal is every byte of the file before the sealed policy. So
/// opening the policy authenticates the whole file. Each slot by itself is verified against the
/// identity alone, in version 2 against the version and the identity.
///
/// In version 2 an authenticator follows the policy under the same seal. Only the passcode opens
/// its key (`authenticatedPolicy`).
public struct Keybag: Equatable, Sendable {
    public static let fileName = "ward.keybag"
    public static let copyFileName = "ward.keybag.copy"
    /// The limit for readers. A keybag has about 600 bytes.
    public static let maximumBytes = 4096
    static let magic: [UInt8] = Array("WARDKBAG".utf8)
    static let versions = VolumeFormat.version1.rawValue...VolumeFormat.version2.rawValue

    /// The format of the volume, which is the version of the keybag.
    public var format: VolumeFormat
    public var identity: KeybagIdentity
    /// The number of times that the keybag was written.
    public var generation: UInt64
    public var deviceSlot: KeybagSlot
    /// Nil in state S0, where the device slot holds all keys.
    public var passcodeSlot: KeybagSlot?
    /// The policy, sealed with `policyAssociatedData`.
    public var sealedPolicy: [UInt8]

    /// Makes a keybag without a sealed policy: the seal needs `policyAssociatedData`, which covers
    /// everything else.
    public init(
        format: VolumeFormat, identity: KeybagIdentity, generation: UInt64,
        deviceSlot: KeybagSlot, passcodeSlot: KeybagSlot?
    ) {
        precondition(
            deviceSlot.kind == .device && passcodeSlot.map { $0.kind == .passcode } ?? true)
        self.format = format
        self.identity = identity
        self.generation = generation
        self.deviceSlot = deviceSlot
        self.passcodeSlot = passcodeSlot
        sealedPolicy = []
    }

    private func head(sealedPolicyBytes: Int) -> [UInt8] {
        var writer = KeybagEnvelope.begin(magic: Keybag.magic, version: format.rawValue)
        identity.write(to: &writer)
        writer.append(generation)
        writer.append([passcodeSlot == nil ? 1 : 2, 0])
        deviceSlot.write(to: &writer)
        passcodeSlot?.write(to: &writer)
        writer.append(UInt16(sealedPolicyBytes))
        return writer.bytes
    }

    /// The data that the seal of a slot of this keybag authenticates beside the set.
    public func associatedData(of slot: KeybagSlot) -> [UInt8] {
        KeybagSlot.associatedData(
            identity, format: format, kind: slot.kind, derivation: slot.derivation)
    }

    /// The data that the policy's seal authenticates: every byte before the sealed policy.
    public var policyAssociatedData: [UInt8] {
        head(sealedPolicyBytes: Keybag.sealedPolicyBytes(in: format))
    }

    /// The message of the policy's authenticator, for a policy of these 24 bytes. It begins with
    /// every byte before the sealed policy. So a policy of another keybag counts as forged,
    /// although the owner set it once.
    public func authenticatedPolicy(_ policy: [UInt8]) -> [UInt8] { policyAssociatedData + policy }

    /// The length of a sealed policy.
    private static func sealedPolicyBytes(in format: VolumeFormat) -> Int {
        let authenticator = format == .version1 ? 0 : KeybagPolicy.authenticatorBytes
        return KeybagPolicy.bytes + authenticator + AEADContext.nonceBytes + AEADContext.tagBytes
    }

    /// The bytes of the file. The policy must be sealed already.
    public var serialized: [UInt8] {
        precondition(!sealedPolicy.isEmpty, "seal the policy first")
        return KeybagEnvelope.seal(head(sealedPolicyBytes: sealedPolicy.count) + sealedPolicy)
    }

    /// Parses a file's bytes; authenticates nothing.
    ///
    /// Throws `FormatError` `malformed`, `notRecognised`, `newerVersion`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader: KeybagReader
        let version: UInt16
        (reader, version) = try KeybagEnvelope.open(
            bytes, magic: Keybag.magic, versions: Keybag.versions,
            maximumBytes: Keybag.maximumBytes, "keybag")
        format = VolumeFormat(rawValue: version)!
        identity = try KeybagIdentity(from: &reader)
        generation = try reader.integer(UInt64.self, "generation")
        let slotCount = try reader.integer(UInt8.self, "slot count")
        guard slotCount == 1 || slotCount == 2 else {
            throw FormatError(.malformed, "keybag: \(slotCount) slots")
        }
        try reader.zeros(1, "reserved field")
        deviceSlot = try KeybagSlot(from: &reader)
        passcodeSlot = slotCount == 2 ? try KeybagSlot(from: &reader) : nil
        guard deviceSlot.kind == .device, passcodeSlot.map({ $0.kind == .passcode }) ?? true else {
            throw FormatError(.malformed, "keybag: slots out of order")
        }
        let policyBytes = Int(try reader.integer(UInt16.self, "policy length"))
        guard policyBytes == Keybag.sealedPolicyBytes(in: format)
        else { throw FormatError(.malformed, "keybag: a policy of \(policyBytes) bytes") }
        sealedPolicy = try reader.take(policyBytes, "sealed policy")
        try reader.end()
    }
}

/// The settings that the owner of a volume chose; sealed under the device's keys.
///
/// ```
///   0  grace period, ms           4   10,000 by default
///   4  CX period, seconds         4   86,400 by default
///   8  flags                      4   bit 0: erase after ten wrong passcodes
///  12  zero                       4
///  16  cost of new passcodes      8   as in `PasscodeDerivation`, bytes 0-7
///  24  authenticator             16   of a keybag of version 2 alone
/// ```
///
/// The device's keys alone seal a policy, so a thief of the device's files can forge one. Limits in
/// the code bound its effect: a longer period counts as the longest one. The authenticator shows a
/// forgery once class C's key is in memory. Until then a forged policy counts.
public struct KeybagPolicy: Equatable, Sendable {
    public static let bytes = 24
    public static let authenticatorBytes = 16
    public static let longestGracePeriod = Duration.seconds(3600)
    public static let longestUserInactivePeriod = Duration.seconds(30 * 24 * 3600)

    /// How long class A stays readable after a lock; at most `longestGracePeriod`.
    public var gracePeriod: Duration = .seconds(10)
    /// How long class CX stays readable after the last unlock; at most
    /// `longestUserInactivePeriod`.
    public var userInactivePeriod: Duration = .seconds(24 * 3600)
    public var erasesAfterTenWrongPasscodes = false
    /// The cost of deriving a key from a passcode that is set from now on.
    public var passcodeCost: Scrypt.Parameters

    public init(passcodeCost: Scrypt.Parameters) {
        self.passcodeCost = passcodeCost
    }

    /// The policy that counts where this one may be forged: the stronger of each of its values and
    /// of the usual ones. `usualCost` is the usual cost of a passcode.
    public func stronger(usualCost: Scrypt.Parameters) -> KeybagPolicy {
        let usual = KeybagPolicy(passcodeCost: usualCost)
        var policy = self
        policy.gracePeriod = min(gracePeriod, usual.gracePeriod)
        policy.userInactivePeriod = min(userInactivePeriod, usual.userInactivePeriod)
        policy.erasesAfterTenWrongPasscodes =
            erasesAfterTenWrongPasscodes || usual.erasesAfterTenWrongPasscodes
        if passcodeCost.work < usualCost.work { policy.passcodeCost = usualCost }
        return policy
    }

    /// The first 24 bytes above.
    public var serialized: [UInt8] {
        var writer = KeybagWriter()
        writer.append(UInt32(clamping: gracePeriod.wholeMilliseconds))
        writer.append(UInt32(clamping: userInactivePeriod.components.seconds))
        writer.append(UInt32(erasesAfterTenWrongPasscodes ? 1 : 0))
        writer.append(UInt32(0))
        PasscodeDerivation.write(passcodeCost, to: &writer)
        return writer.bytes
    }

    /// Parses the 24 bytes. Throws `FormatError` `malformed`.
    public init(reading bytes: [UInt8]) throws(FormatError) {
        var reader = KeybagReader(bytes[...], "keybag policy")
        gracePeriod = min(
            .milliseconds(try reader.integer(UInt32.self, "grace period")),
            KeybagPolicy.longestGracePeriod)
        userInactivePeriod = min(
            .seconds(try reader.integer(UInt32.self, "CX period")),
            KeybagPolicy.longestUserInactivePeriod)
        let flags = try reader.integer(UInt32.self, "flags")
        guard flags <= 1 else { throw FormatError(.malformed, "keybag policy: unknown flags") }
        erasesAfterTenWrongPasscodes = flags == 1
        try reader.zeros(4, "reserved field")
        passcodeCost = try PasscodeDerivation.readCost(from: &reader)
        try reader.end()
    }
}

extension Duration {
    fileprivate var wholeMilliseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds.multipliedReportingOverflow(by: 1000).overflow
            ? .max : seconds * 1000 + attoseconds / 1_000_000_000_000_000
    }
}

extension Scrypt.Parameters {
    /// The number of blocks that a guess mixes, to compare costs.
    fileprivate var work: UInt64 { n * r * p }
}
