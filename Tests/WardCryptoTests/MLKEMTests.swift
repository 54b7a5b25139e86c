import Crypto
import Testing
import WardSystem

@testable import WardCrypto

/// ML-KEM-768 beside the public interface of swift-crypto, in both directions.
@Suite("Key encapsulation")
struct MLKEMTests {
    private let seed = [UInt8](0..<64)

    @Test("both sides find the same secret, whichever makes the capsule")
    func agreement() throws {
        let key = try WardCrypto.MLKEM768.publicKey(ofSeed: try secret(seed))
        let other = try Crypto.MLKEM768.PrivateKey(seedRepresentation: seed, publicKey: nil)
        #expect(Array(other.publicKey.rawRepresentation) == key)

        var ciphertext: [UInt8] = []
        let made = try WardCrypto.MLKEM768.encapsulate(to: key, ciphertext: &ciphertext).exposed()
        let found = try other.decapsulate(ciphertext)
        #expect(found.withUnsafeBytes { Array($0) } == made)

        let sent = try other.publicKey.encapsulate()
        let opened = try WardCrypto.MLKEM768.decapsulate(
            Array(sent.encapsulated), seed: try secret(seed)
        ).exposed()
        #expect(sent.sharedSecret.withUnsafeBytes { Array($0) } == opened)
    }

    @Test("each capsule is new, and a changed one gives another secret")
    func changes() throws {
        let key = try WardCrypto.MLKEM768.publicKey(ofSeed: try secret(seed))
        var first: [UInt8] = []
        var second: [UInt8] = []
        let made = try WardCrypto.MLKEM768.encapsulate(to: key, ciphertext: &first).exposed()
        #expect(try WardCrypto.MLKEM768.encapsulate(to: key, ciphertext: &second).exposed() != made)
        #expect(first != second)
        for at in [0, 500, 1087] {
            var changed = first
            changed[at] ^= 1
            #expect(
                try WardCrypto.MLKEM768.decapsulate(changed, seed: try secret(seed)).exposed()
                    != made)
        }
        #expect(
            try WardCrypto.MLKEM768.decapsulate(first, seed: try secret(Array(1..<65))).exposed()
                != made)
    }

    @Test("bytes that are no public key or no ciphertext are refused")
    func refusals() throws {
        let key = try WardCrypto.MLKEM768.publicKey(ofSeed: try secret(seed))
        var ciphertext: [UInt8] = []
        // FIPS 203 §7.2: a coefficient of the field's size or more.
        for bad in [[], Array(key.dropLast()), key + [0], [0xFF, 0xFF] + key.dropFirst(2)] {
            #expect(throws: CryptoError.invalidPublicKey) {
                _ = try WardCrypto.MLKEM768.encapsulate(to: bad, ciphertext: &ciphertext).exposed()
            }
        }
        for count in [0, 1087, 1089] {
            #expect(throws: CryptoError.invalidParameters) {
                _ = try WardCrypto.MLKEM768.decapsulate(
                    [UInt8](repeating: 0, count: count), seed: try secret(seed)
                ).exposed()
            }
        }
    }
}
