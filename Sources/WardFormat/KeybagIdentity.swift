/// The part of a keybag that never changes. It is in clear, and begins the associated data of every
/// seal.
///
/// ```
///   0  volume UUID               16
///  16  bytes of a page            2   512 or 4096
///  18  zero                       2
///  20  class B public key        32   X25519
/// ```
public struct KeybagIdentity: Equatable, Sendable {
    public static let bytes = 52

    public var parameters: VolumeParameters
    public var classBPublicKey: [UInt8]

    public init(parameters: VolumeParameters, classBPublicKey: [UInt8]) {
        precondition(classBPublicKey.count == 32)
        self.parameters = parameters
        self.classBPublicKey = classBPublicKey
    }

    func write(to writer: inout KeybagWriter) {
        writer.append(parameters.uuid)
        writer.append(UInt16(parameters.pageBytes))
        writer.append(UInt16(0))
        writer.append(classBPublicKey)
    }

    init(from reader: inout KeybagReader) throws(FormatError) {
        let uuid = try reader.take(16, "volume UUID")
        let pageBytes = Int(try reader.integer(UInt16.self, "page size"))
        guard pageBytes == 512 || pageBytes == 4096 else {
            throw FormatError(.malformed, "keybag: pages of \(pageBytes) bytes")
        }
        try reader.zeros(2, "reserved field")
        parameters = VolumeParameters(uuid: uuid, pageBytes: pageBytes)
        classBPublicKey = try reader.take(32, "class B public key")
    }

    /// The 52 bytes above.
    public var serialized: [UInt8] {
        var writer = KeybagWriter()
        write(to: &writer)
        return writer.bytes
    }
}
