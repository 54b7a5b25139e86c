import Testing
import WardFormat
import WardSystem

@testable import WardKeys

@Suite struct ClassKeyringTests {
    @Test("Keys move to another keyring, which has them all; nothing is left behind")
    func moveAll() throws {
        let source = ClassKeyring(classBPublicKey: [UInt8](repeating: 9, count: 32))
        let target = ClassKeyring(classBPublicKey: [UInt8](repeating: 9, count: 32))
        let moved: [ProtectionClass] = [
            .complete, .completeUnlessOpen, .completeUntilFirstUserAuthentication,
            .completeWhenUserInactive,
        ]
        for protectionClass in moved {
            var key = try SecretBytes(zeroed: 32)
            key.withUnsafeMutableBytes {
                for index in $0.indices { $0[index] = protectionClass.rawValue }
            }
            source.install(key, for: protectionClass)
        }
        target.install(try SecretBytes(random: 32), for: .none)
        source.moveAll(to: target)
        #expect(source.available == [])
        #expect(target.available == .all)
        for protectionClass in moved {
            let first = try target.withKey(of: protectionClass) { key in
                key.withUnsafeBytes { [UInt8]($0) }
            }
            #expect(first == [UInt8](repeating: protectionClass.rawValue, count: 32))
            #expect(throws: KeyringError.unavailable) {
                try source.withKey(of: protectionClass) { _ in () }
            }
        }
    }
}
