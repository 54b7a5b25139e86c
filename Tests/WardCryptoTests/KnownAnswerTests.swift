import CWardLinux
import Testing
import WardSystem

@testable import WardCrypto

@Suite("Published vectors")
struct KnownAnswerTests {
    @Test("the self-test passes and takes a few milliseconds at most")
    func selfTest() throws {
        // The machine may be busy during one or two of the runs.
        let times = try (0..<5).map { _ in
            let start = SystemClock.monotonic()
            try SelfTest.run()
            return SystemClock.monotonic() - start
        }
        #expect(times.min()! < .milliseconds(50))
    }

    struct Wrap: Sendable {
        let name: String
        let key: String
        let wrapped: String
    }

    @Test(
        "AES key wrap, RFC 3394, 256-bit KEK",
        arguments: [
            Wrap(
                name: "4.3", key: "00112233445566778899aabbccddeeff",
                wrapped: "64e8c3f9ce0f5ba263e9777905818a2a93c8191e7d6e8ae7"),
            Wrap(
                name: "4.5", key: "00112233445566778899aabbccddeeff0001020304050607",
                wrapped: "a8f9bc1612c68b3ff6e6f4fbe30e71e4769c8b80a32cb8958cd5d17d6b254da1"),
            Wrap(
                name: "4.6",
                key: "00112233445566778899aabbccddeeff000102030405060708090a0b0c0d0e0f",
                wrapped: "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43b"
                    + "fb988b9b7a02dd21"),
        ])
    func keyWrap(_ vector: Wrap) throws {
        let kek = try secret(Array(0..<32))
        let wrapped = AESKeyWrap.wrap(try secret(hex(vector.key)), using: kek)
        #expect(wrapped == hex(vector.wrapped))
        let unwrapped = try wrapped.withUnsafeBytes {
            try AESKeyWrap.unwrap($0, using: kek).exposed()
        }
        #expect(unwrapped == hex(vector.key))
        for bit in 0..<wrapped.count * 8 {
            var changed = wrapped
            changed[bit / 8] ^= 1 << UInt8(bit % 8)
            #expect(throws: CryptoError.authenticationFailed, "bit \(bit) changed") {
                _ = try changed.withUnsafeBytes {
                    try AESKeyWrap.unwrap($0, using: kek).exposed()
                }
            }
        }
    }

    @Test("HKDF-SHA-256, RFC 5869 cases 1 and 2, by the function that KeyDerivation calls")
    func hkdfBinaryInfo() throws {
        let cases: [(secret: [UInt8], salt: [UInt8], info: [UInt8], okm: String)] = [
            (
                [UInt8](repeating: 0x0b, count: 22), Array(0...12), Array(0xf0...0xf9),
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
            ),
            (
                Array(0x00...0x4f), Array(0x60...0xaf), Array(0xb0...0xff),
                "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
                    + "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
                    + "cc30c58179ec3e87c14c01d5c1f3434f1d87"
            ),
        ]
        for test in cases {
            var okm = [UInt8](repeating: 0, count: test.okm.count / 2)
            let ok = CCryptoBoringSSL_HKDF(
                &okm, okm.count, CCryptoBoringSSL_EVP_sha256(), test.secret, test.secret.count,
                test.salt, test.salt.count, test.info, test.info.count)
            #expect(ok == 1 && okm == hex(test.okm))
        }
    }

    @Test("HKDF-SHA-256, RFC 5869 case 3")
    func hkdf() throws {
        let okm = try KeyDerivation.derive(
            from: try secret([UInt8](repeating: 0x0b, count: 22)), info: "", count: 42)
        #expect(
            okm.exposed()
                == hex(
                    "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
                        + "9d201395faa4b61a96c8"))
    }

    @Test("HMAC-SHA-256, RFC 4231 cases 1 to 3")
    func hmac() throws {
        let cases: [([UInt8], [UInt8], String)] = [
            (
                [UInt8](repeating: 0x0b, count: 20), Array("Hi There".utf8),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
            ),
            (
                Array("Jefe".utf8), Array("what do ya want for nothing?".utf8),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
            ),
            (
                [UInt8](repeating: 0xaa, count: 20), [UInt8](repeating: 0xdd, count: 50),
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"
            ),
        ]
        for (key, message, tag) in cases {
            #expect(HMACSHA256.authenticate(message, key: try secret(key)) == hex(tag))
            #expect(
                try HMACSHA256.derive(try secret(message), key: try secret(key)).exposed()
                    == hex(tag))
        }
    }

    struct ScryptVector: Sendable {
        let passcode: String
        let salt: String
        let n: UInt64
        let r: UInt64
        let p: UInt64
        let key: String
    }

    @Test(
        "scrypt, RFC 7914 12",
        arguments: [
            ScryptVector(
                passcode: "", salt: "", n: 16, r: 1, p: 1,
                key: "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442"
                    + "fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906"),
            ScryptVector(
                passcode: "password", salt: "NaCl", n: 1024, r: 8, p: 16,
                key: "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
                    + "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640"),
            ScryptVector(
                passcode: "pleaseletmein", salt: "SodiumChloride", n: 16384, r: 8, p: 1,
                key: "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
                    + "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"),
        ])
    func scrypt(_ vector: ScryptVector) throws {
        let key = try Scrypt.derive(
            from: try secret(Array(vector.passcode.utf8)), salt: Array(vector.salt.utf8),
            parameters: .init(n: vector.n, r: vector.r, p: vector.p), count: 64)
        #expect(key.exposed() == hex(vector.key))
    }

    @Test("X25519, RFC 7748 5.2 and 6.1")
    func x25519() throws {
        let first = try X25519.sharedSecret(
            try secret(hex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")),
            hex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"))
        #expect(
            first.exposed()
                == hex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"))
        let alice = try secret(
            hex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
        let bob = try secret(
            hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
        let expected = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        #expect(try X25519.sharedSecret(alice, X25519.publicKey(of: bob)).exposed() == expected)
        #expect(try X25519.sharedSecret(bob, X25519.publicKey(of: alice)).exposed() == expected)
    }

    @Test("X25519 refuses public keys of small order (RFC 7748 6.1, RFC 7748 7)")
    func smallOrder() throws {
        let privateKey = try SecretBytes(random: 32)
        for point in [
            String(repeating: "00", count: 32), "01" + String(repeating: "00", count: 31),
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
            "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ] {
            var refused = false
            do throws(CryptoError) {
                _ = try X25519.sharedSecret(privateKey, hex(point))
            } catch {
                refused = error == .invalidPublicKey
            }
            #expect(refused, "point \(point)")
        }
    }

    @Test("SP 800-56A concatenation KDF: RFC 7518 C, and NIST's vector in pyca/cryptography")
    func concatenationKDF() throws {
        let jose = try ConcatenationKDF.derive(
            from: try secret(
                hex("9e56d91d817135d372834283bf84269cfb316ea3da806a48f6daa7798cfe90c4")),
            otherInfo: hex("000000074131323847434d00000005416c69636500000003426f6200000080"))
        #expect(Array(jose.exposed()[..<16]) == hex("56aa8deaf8236d205c2228cd71a7101a"))
        let nist = try ConcatenationKDF.derive(
            from: try secret(
                hex("52169af5c485dcc2321eb8d26d5efa21fb9b93c98e38412ee2484cf14f0d0d23")),
            otherInfo: hex(
                "a1b2c3d4e53728157e634612c12d6d5223e204aeea4341565369647bd184bcd2"
                    + "46f72971f292badaa2fe4124612cba"))
        #expect(Array(nist.exposed()[..<16]) == hex("1c3bc9e7c4547c5191c0d478cccaed55"))
    }

    @Test("the class B wrapping key is that KDF over both public keys")
    func classBWrappingKey() throws {
        let shared = try secret(Array(0..<32))
        let ephemeral = [UInt8](repeating: 0xAA, count: 32)
        let fixed = [UInt8](repeating: 0x55, count: 32)
        let key = try OnePassDiffieHellman.wrappingKey(
            sharedSecret: shared, ephemeralPublicKey: ephemeral, classPublicKey: fixed)
        #expect(
            key.exposed() == SHA256Digest.hash([0, 0, 0, 1] + Array(0..<32) + ephemeral + fixed))
    }
}
