import WardSystem

/// A random UUID, RFC 9562 version 4, as 16 bytes.
enum UUID4 {
    static func random() -> [UInt8] {
        var bytes = SystemRandom.bytes(16)
        bytes[6] = bytes[6] & 0x0F | 0x40
        bytes[8] = bytes[8] & 0x3F | 0x80
        return bytes
    }
}
