import WardSystem

/// The failure of a primitive that does not give the published answer.
public struct SelfTestError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The primitive and the vector's source.
    public let test: String
    /// The test could not run: no memory could be locked for its keys.
    public let lacksLockedMemory: Bool

    public var description: String {
        lacksLockedMemory
            ? "no memory could be locked for keys"
            : "self-test failed: \(test); this build, or this machine, computes wrongly"
    }
}

/// Known-answer tests for every primitive that ward uses, by the same calls. They take a
/// millisecond and run before any key is touched.
///
/// ward calls BoringSSL by names that are not swift-crypto's public interface. So another version
/// behind them is found here, and not by losing data. All vectors are published ones.
public enum SelfTest {
    /// Runs all tests; throws at the first that fails.
    public static func run() throws(SelfTestError) {
        try check("AES-256-GCM, NIST GCM specification case 16", aesGCM)
        try check("AES-256-GCM-SIV, RFC 8452 C.2", aesGCMSIV)
        try check("XAES-256-GCM, C2SP", xaesGCM)
        try check("AES key wrap, RFC 3394 4.6", keyWrap)
        try check("HMAC-SHA-256, RFC 4231 case 1", hmac)
        try check("HKDF-SHA-256, RFC 5869 case 3", hkdf)
        try check("scrypt, RFC 7914 12", scrypt)
        try check("X25519, RFC 7748 6.1", x25519)
        try check("ML-KEM-768, NIST's first vector", mlkem768)
        try check("concatenation KDF, RFC 7518 C", concatenationKDF)
    }

    private static func check(
        _ test: String, _ body: () throws -> Bool
    ) throws(SelfTestError) {
        var lacksLockedMemory = false
        do {
            if try body() { return }
        } catch {
            lacksLockedMemory = error is Errno || error as? CryptoError == .outOfLockedMemory
        }
        throw SelfTestError(test: test, lacksLockedMemory: lacksLockedMemory)
    }

    private static func aesGCM() throws -> Bool {
        try aead(
            .aes256GCM,
            key: "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            nonce: "cafebabefacedbaddecaf888",
            plaintext: "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
                + "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
            associatedData: "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            sealed: "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
                + "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
                + "76fc6ece0f4e1768cddf8853bb2d551b")
    }

    private static func aesGCMSIV() throws -> Bool {
        try aead(
            .aes256GCMSIV,
            key: "0100000000000000000000000000000000000000000000000000000000000000",
            nonce: "030000000000000000000000", plaintext: "0200000000000000",
            associatedData: "01",
            sealed: "1de22967237a813291213f267e3b452f02d01ae33e4ec854")
    }

    /// The two keys take the two branches of CMAC's doubling.
    private static func xaesGCM() throws -> Bool {
        let vectors: [(key: String, associatedData: String, sealed: String)] = [
            ("01", "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (
                "03", "c2sp.org/XAES-256-GCM",
                "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"
            ),
        ]
        let nonce = Array("ABCDEFGHIJKLMNOPQRSTUVWX".utf8)
        return try vectors.allSatisfy { vector in
            let cipher = try XAES256GCM(
                key: try secret(String(repeating: vector.key, count: 32)))
            let data = Array(vector.associatedData.utf8)
            var sealed = try Array("XAES-256-GCM".utf8).withUnsafeBytes {
                try cipher.seal($0, nonce: nonce, associatedData: data)
            }
            guard sealed == nonce + bytes(vector.sealed),
                try cipher.open(sealed, associatedData: data).withUnsafeBytes({
                    $0.elementsEqual("XAES-256-GCM".utf8)
                })
            else { return false }
            sealed[sealed.count - 1] ^= 1
            return (try? cipher.open(sealed, associatedData: data).count) == nil
        }
    }

    /// Seals, compares, opens again, and checks that a changed tag is refused.
    private static func aead(
        _ algorithm: AEADContext.Algorithm, key: String, nonce: String, plaintext: String,
        associatedData: String, sealed: String
    ) throws -> Bool {
        let context = try AEADContext(algorithm, key: try secret(key))
        let nonce = bytes(nonce)
        let plain = bytes(plaintext)
        let data = bytes(associatedData)
        var out = [UInt8](repeating: 0, count: plain.count)
        var tag = [UInt8](repeating: 0, count: AEADContext.tagBytes)
        context.seal(
            plain, count: plain.count, to: &out, tag: &tag, nonce: nonce, associatedData: data,
            associatedDataBytes: data.count)
        guard out + tag == bytes(sealed) else { return false }
        var again = [UInt8](repeating: 0, count: plain.count)
        let opened = context.open(
            out, count: out.count, to: &again, tag: tag, nonce: nonce, associatedData: data,
            associatedDataBytes: data.count)
        guard opened, again == plain else { return false }
        tag[0] ^= 1
        return !context.open(
            out, count: out.count, to: &again, tag: tag, nonce: nonce, associatedData: data,
            associatedDataBytes: data.count)
    }

    private static func keyWrap() throws -> Bool {
        let kek = try secret("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")
        let key = try secret("00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f")
        let wrapped = AESKeyWrap.wrap(key, using: kek)
        let expected =
            "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21"
        guard wrapped == bytes(expected) else { return false }
        return try wrapped.withUnsafeBytes {
            let unwrapped = try AESKeyWrap.unwrap($0, using: kek)
            return unwrapped == key
        }
    }

    private static func hmac() throws -> Bool {
        let key = try secret(String(repeating: "0b", count: 20))
        return HMACSHA256.authenticate(Array("Hi There".utf8), key: key)
            == bytes("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7")
    }

    private static func hkdf() throws -> Bool {
        let key = try KeyDerivation.derive(
            from: try secret(String(repeating: "0b", count: 22)), info: "", count: 42)
        let expected = try secret(
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
                + "9d201395faa4b61a96c8")
        return key == expected
    }

    private static func scrypt() throws -> Bool {
        let key = try Scrypt.derive(
            from: try secret(""), salt: [], parameters: .init(n: 16, r: 1, p: 1), count: 64)
        let expected = try secret(
            "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442"
                + "fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906")
        return key == expected
    }

    private static func x25519() throws -> Bool {
        let alice = try secret("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
        let bob = bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
        guard
            X25519.publicKey(of: alice)
                == bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
        else { return false }
        let shared = try X25519.sharedSecret(alice, bob)
        let expected = try secret(
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        return shared == expected
    }

    /// Compares the public key of the vector's seed by its digest, and makes a round trip. FIPS 203
    /// §6.3 says the secret of a ciphertext that is none: SHAKE-256 of z ‖ ciphertext.
    private static func mlkem768() throws -> Bool {
        let seed = try secret(
            "7c9935a0b07694aa0c6d10e4db6b1add2fd81a25ccb148032dcd739936737f2d"
                + "b505d7cfad1b497499323c8686325e4792f267aafa3f87ca60d01cb54f29202a")
        let publicKey = try MLKEM768.publicKey(ofSeed: seed)
        let digest = "86adbca81f4fee893e2fb58fb98aa2fe188f501fed268d7f4056f8c05c4e53c4"
        guard SHA256Digest.hash(publicKey) == bytes(digest) else { return false }
        var ciphertext: [UInt8] = []
        let sent = try MLKEM768.encapsulate(to: publicKey, ciphertext: &ciphertext)
        let received = try MLKEM768.decapsulate(ciphertext, seed: seed)
        guard sent == received else { return false }
        let rejected = try MLKEM768.decapsulate(
            [UInt8](repeating: 0, count: MLKEM768.ciphertextBytes), seed: seed)
        let expected = try secret(
            "50ff20fd6a4c2e372c2ac80aef09995cb26c22d1a8cb9eb95cb83b5a018a48fb")
        return rejected == expected
    }

    private static func concatenationKDF() throws -> Bool {
        let key = try ConcatenationKDF.derive(
            from: try secret("9e56d91d817135d372834283bf84269cfb316ea3da806a48f6daa7798cfe90c4"),
            otherInfo: bytes(
                "000000074131323847434d00000005416c69636500000003426f6200000080"))
        // The vector derives 128 bits: the first half of the block.
        let half = try key.slice(0..<16)
        let expected = try secret("56aa8deaf8236d205c2228cd71a7101a")
        return half == expected
    }

    private static func secret(_ hex: String) throws(Errno) -> SecretBytes {
        let source = bytes(hex)
        var result = try SecretBytes(zeroed: source.count)
        result.withUnsafeMutableBytes { $0.copyBytes(from: source) }
        return result
    }

    private static func bytes(_ hex: String) -> [UInt8] {
        let digits = hex.utf8.map { UInt8($0 < 58 ? $0 - 48 : $0 - 87) }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }
}
