import Testing
import WardSystem

@testable import WardCrypto

/// XAES-256-GCM beyond its published vectors, which `SelfTest` has.
@Suite("Extended nonces")
struct XAESTests {
    private func sealed(_ text: String, _ cipher: borrowing XAES256GCM, _ data: [UInt8] = [7])
        throws -> [UInt8]
    {
        try Array(text.utf8).withUnsafeBytes { try cipher.seal($0, associatedData: data) }
    }

    @Test("every changed byte, other data, another key and every cut are refused")
    func changes() throws {
        let cipher = try XAES256GCM(key: try secret(Array(0..<32)))
        let whole = try sealed("some text", cipher)
        #expect(whole.count == 9 + XAES256GCM.overheadBytes)
        #expect(try cipher.open(whole, associatedData: [7]).exposed() == Array("some text".utf8))
        func refuses(_ bytes: [UInt8], _ data: [UInt8] = [7]) -> Bool {
            do throws(CryptoError) {
                return try cipher.open(bytes, associatedData: data).count < 0
            } catch {
                return error == .authenticationFailed
            }
        }
        for index in whole.indices {
            var changed = whole
            changed[index] ^= 1
            #expect(refuses(changed), "byte \(index)")
        }
        for count in whole.indices { #expect(refuses(Array(whole.prefix(count)))) }
        #expect(refuses(whole, [8]))
        #expect(refuses(whole, []))
        let other = try XAES256GCM(key: try secret(Array(1..<33)))
        #expect(throws: CryptoError.authenticationFailed) {
            _ = try other.open(whole, associatedData: [7]).exposed()
        }
    }

    @Test("nothing is sealed twice alike, and nothing of no bytes is possible")
    func nonces() throws {
        let cipher = try XAES256GCM(key: try secret(Array(0..<32)))
        let all = try (0..<64).map { _ in try sealed("", cipher) }
        #expect(Set(all.map { $0.prefix(XAES256GCM.nonceBytes) }).count == 64)
        for one in all { #expect(try cipher.open(one, associatedData: [7]).exposed() == []) }
    }
}
