/// The parameters of a volume that never change. They are part of the keybag, in clear and
/// authenticated.
public struct VolumeParameters: Equatable, Sendable {
    /// 16 random bytes.
    public var uuid: [UInt8]
    /// The size of a page on disk, the header of page 0 included: 512 or 4096 bytes.
    public var pageBytes: Int
    /// The format that the keybag vouches for. Structures of an earlier one are damaged, even where
    /// the root's own files say otherwise.
    public var leastFormat = VolumeFormat.version1

    public init(uuid: [UInt8], pageBytes: Int) {
        precondition(uuid.count == 16 && (pageBytes == 512 || pageBytes == 4096))
        self.uuid = uuid
        self.pageBytes = pageBytes
    }

    /// The UUID as `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    public var uuidString: String {
        let digits = Array("0123456789abcdef".utf8)
        var text: [UInt8] = []
        for (index, byte) in uuid.enumerated() {
            if index == 4 || index == 6 || index == 8 || index == 10 {
                text.append(UInt8(ascii: "-"))
            }
            text.append(digits[Int(byte >> 4)])
            text.append(digits[Int(byte & 15)])
        }
        return String(decoding: text, as: UTF8.self)
    }
}
