import Crypto
import Testing
import WardSystem

@testable import WardCrypto

@Suite("AEAD contexts")
struct AEADTests {
    struct Vector: Sendable {
        let name: String
        let algorithm: AEADContext.Algorithm
        let key: String
        let nonce: String
        let plaintext: String
        let associatedData: String
        let sealed: String
    }

    static let one = "01" + String(repeating: "00", count: 31)
    static let zeros = String(repeating: "00", count: 32)
    static let vectors = [
        Vector(
            name: "NIST GCM 13", algorithm: .aes256GCM, key: zeros,
            nonce: "000000000000000000000000", plaintext: "", associatedData: "",
            sealed: "530f8afbc74536b9a963b4f1c4cb738b"),
        Vector(
            name: "NIST GCM 14", algorithm: .aes256GCM, key: zeros,
            nonce: "000000000000000000000000", plaintext: "00000000000000000000000000000000",
            associatedData: "",
            sealed: "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
        Vector(
            name: "NIST GCM 16", algorithm: .aes256GCM,
            key: "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            nonce: "cafebabefacedbaddecaf888",
            plaintext: "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
                + "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            associatedData: "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            sealed: "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
                + "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
                + "76fc6ece0f4e1768cddf8853bb2d551b"),
        Vector(
            name: "RFC 8452 C.2, empty", algorithm: .aes256GCMSIV, key: one,
            nonce: "030000000000000000000000", plaintext: "", associatedData: "",
            sealed: "07f5f4169bbf55a8400cd47ea6fd400f"),
        Vector(
            name: "RFC 8452 C.2, 8 bytes", algorithm: .aes256GCMSIV, key: one,
            nonce: "030000000000000000000000", plaintext: "0100000000000000",
            associatedData: "", sealed: "c2ef328e5c71c83b843122130f7364b761e0b97427e3df28"),
        Vector(
            name: "RFC 8452 C.2, associated data", algorithm: .aes256GCMSIV, key: one,
            nonce: "030000000000000000000000", plaintext: "0200000000000000",
            associatedData: "01", sealed: "1de22967237a813291213f267e3b452f02d01ae33e4ec854"),
    ]

    @Test("published vectors seal and open", arguments: vectors)
    func published(_ vector: Vector) throws {
        let context = try AEADContext(vector.algorithm, key: try secret(hex(vector.key)))
        let plain = hex(vector.plaintext)
        let data = hex(vector.associatedData)
        let nonce = hex(vector.nonce)
        var out = [UInt8](repeating: 0, count: max(plain.count, 1))
        var tag = [UInt8](repeating: 0, count: 16)
        context.seal(
            plain, count: plain.count, to: &out, tag: &tag, nonce: nonce, associatedData: data,
            associatedDataBytes: data.count)
        #expect(Array(out[..<plain.count]) + tag == hex(vector.sealed))
        let opened = try context.openSecret(nonce + hex(vector.sealed), associatedData: data)
        #expect(opened.exposed() == plain)
    }

    @Test("AES-256-GCM agrees with swift-crypto's public API on random inputs")
    func agreesWithPublicAPI() throws {
        var generator = SystemRandomNumberGenerator()
        for round in 0..<300 {
            let key = SystemRandom.bytes(32)
            let nonce = SystemRandom.bytes(12)
            let plain = SystemRandom.bytes(
                round < 40 ? round : .random(in: 0...5000, using: &generator))
            let data = SystemRandom.bytes(.random(in: 0...64, using: &generator))
            let context = try AEADContext(.aes256GCM, key: try secret(key))
            var out = [UInt8](repeating: 0, count: plain.count + 1)
            var tag = [UInt8](repeating: 0, count: 16)
            context.seal(
                plain, count: plain.count, to: &out, tag: &tag, nonce: nonce,
                associatedData: data, associatedDataBytes: data.count)
            let theirs = try AES.GCM.seal(
                plain, using: SymmetricKey(data: key), nonce: AES.GCM.Nonce(data: nonce),
                authenticating: data)
            #expect(Array(out[..<plain.count]) == Array(theirs.ciphertext), "round \(round)")
            #expect(tag == Array(theirs.tag), "round \(round)")
            let ours = try context.openSecret(
                nonce + Array(theirs.ciphertext) + Array(theirs.tag), associatedData: data)
            #expect(ours.exposed() == plain)
        }
    }

    @Test("every bit of a sealed secret, its nonce and its associated data counts")
    func everyBitCounts() throws {
        let context = try AEADContext(.aes256GCM, key: try SecretBytes(random: 32))
        let data: [UInt8] = [1, 2, 3]
        let sealed = context.sealSecret(try SecretBytes(random: 40), associatedData: data)
        for bit in 0..<sealed.count * 8 {
            var changed = sealed
            changed[bit / 8] ^= 1 << UInt8(bit % 8)
            let opened = opens(context, changed, data)
            #expect(!opened, "bit \(bit) changed")
        }
        let results = [
            opens(context, sealed, data), opens(context, sealed, [1, 2, 4]),
            opens(context, sealed, []), opens(context, Array(sealed.dropLast()), data),
            opens(context, [], data),
        ]
        #expect(results == [true, false, false, false, false])
    }

    private func opens(_ context: borrowing AEADContext, _ sealed: [UInt8], _ data: [UInt8]) -> Bool
    {
        do throws(WardCrypto.CryptoError) {
            _ = try context.openSecret(sealed, associatedData: data)
            return true
        } catch {
            return false
        }
    }
}
