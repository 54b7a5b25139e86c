import Testing
import WardCrypto
import WardSystem

@testable import WardFormat

/// The keys of pages, docs/format.md §4 and §12.
@Suite("Keys of pages")
struct PageKeyTests {
    @Test("HKDF-Expand of the file key, with the epoch; computed by Python's hmac")
    func knownAnswer() throws {
        let secret = try fileKey()
        let key = try PageKey.derive(from: secret, epoch: 77)
        let wanted = "f92f149583f3384c70fa3fdc391b68771f46308fda60d2f55bb9415d910d549f"
        #expect(key.withUnsafeBytes { $0.map(hex).joined() } == wanted)
    }

    @Test("no two epochs share a key, and none has the file's")
    func epochs() throws {
        let secret = try fileKey()
        let epochs: [UInt32] = [0, 1, 2, 255, 256, 65_536, 1 << 24, .max]
        let keys = try epochs.map { epoch in
            try PageKey.derive(from: secret, epoch: epoch).withUnsafeBytes { [UInt8]($0) }
        }
        #expect(Set(keys + [[UInt8](0..<32)]).count == epochs.count + 1)
    }

    /// The arithmetic of docs/format.md §12. Rate: page writes a second into one file.
    @Test("a hundred years of 10,000 page writes a second stay below 2^32 for each key")
    func bound() {
        let rate = 10_000.0, year = 365.25 * 86_400
        // One key, with a durable point each two minutes; the file key without epochs.
        let epoch = 120.0
        #expect(rate * epoch < 0x1p21)
        #expect(rate * 100 * year > 0x1p44)
        // Chance that any two nonces of 96 bits under one key are alike: q² / 2^97 for each epoch.
        let epochs = 100 * year / epoch
        #expect(epochs * (rate * epoch) * (rate * epoch) / 0x1p97 < 0x1p-31)
        // Attributes and links: nonces of 192 bits under one key.
        #expect((rate * 100 * year) * (rate * 100 * year) / 0x1p193 < 0x1p-100)
    }

    private func fileKey() throws -> SecretBytes {
        var key = try SecretBytes(zeroed: 32)
        key.withUnsafeMutableBytes { $0.copyBytes(from: [UInt8](0..<32)) }
        return key
    }

    private func hex(_ byte: UInt8) -> String {
        let digits = String(byte, radix: 16)
        return digits.count == 1 ? "0" + digits : digits
    }
}
