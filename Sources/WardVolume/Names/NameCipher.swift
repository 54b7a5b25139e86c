import Glibc
import WardCrypto
import WardFormat
import WardSystem

/// Names in the backing store: base64url of the AES-256-GCM-SIV of the name under the names key.
/// The associated data is the directory's ID. The nonce is zero: a name has one encryption per
/// directory, which look-up needs.
///
/// A name of more than 175 bytes of plaintext would be too long for the backing file system. Its
/// stored name is `~` ‖ base64url of the ciphertext's SHA-256. A symbolic link `.n` ‖ the same 43
/// characters holds the whole ciphertext as its target (`NameTree`).
package struct NameCipher: ~Copyable, Sendable {
    /// Longest plaintext name whose encryption fits in 255 bytes.
    package static let longestShortName = 175
    /// The first character of a long stored name.
    package static let longNamePrefix = UInt8(ascii: "~")

    /// AES-256-GCM-SIV.
    private let cipher: AEADContext

    init(_ cipher: consuming AEADContext) { self.cipher = cipher }

    /// Writes the stored name, zero-terminated, to `out` (512 bytes). True where the name is a long
    /// one. Throws `ENAMETOOLONG` above 255 bytes, `EINVAL` for none.
    @discardableResult
    func encrypt(
        _ name: UnsafeRawBufferPointer, in directoryID: [UInt8], to out: UnsafeMutablePointer<CChar>
    ) throws(Errno) -> Bool {
        guard name.count <= 255 else { throw .fileNameTooLong }
        guard name.count > 0 else { throw .invalidArgument }
        let long = name.count > NameCipher.longestShortName
        withSealedName(name, directoryID) { sealed in
            let characters = UnsafeMutableRawPointer(out).assumingMemoryBound(to: UInt8.self)
            if long {
                characters[0] = NameCipher.longNamePrefix
                SHA256Digest.hash(sealed).withUnsafeBytes {
                    Base64URL.encode($0, to: characters + 1)
                }
                out[44] = 0
            } else {
                Base64URL.encode(sealed, to: characters)
                out[Base64URL.encodedCount(sealed.count)] = 0
            }
        }
        return long
    }

    /// Returns the plaintext of a stored name (a short name, or the target of a long name's link).
    /// Nil where the name is not ward's.
    package func decrypt(_ stored: UnsafeRawBufferPointer, in directoryID: [UInt8]) -> [UInt8]? {
        let sealedCount = Base64URL.decodedCount(stored.count)
        guard sealedCount > 16, sealedCount <= 255 + 16 else { return nil }
        return withUnsafeTemporaryAllocation(byteCount: 320, alignment: 16) { buffer -> [UInt8]? in
            let base = buffer.baseAddress!
            guard Base64URL.decode(stored, to: base.assumingMemoryBound(to: UInt8.self)) else {
                return nil
            }
            let nonce = base + 304
            nonce.initializeMemory(as: UInt8.self, repeating: 0, count: 12)
            let count = sealedCount - 16
            let name = [UInt8](unsafeUninitializedCapacity: count) { out, initialized in
                let ok = directoryID.withUnsafeBytes { id in
                    cipher.open(
                        base, count: count, to: out.baseAddress!, tag: base + count, nonce: nonce,
                        associatedData: id.baseAddress, associatedDataBytes: id.count)
                }
                initialized = ok ? count : 0
            }
            return name.isEmpty ? nil : name
        }
    }

    /// The target of the symbolic link beside a long name: base64url of the ciphertext.
    package func longNameTarget(_ name: UnsafeRawBufferPointer, in directoryID: [UInt8]) -> String {
        withSealedName(name, directoryID) { Base64URL.encode([UInt8]($0)) }
    }

    /// The name of the link that holds a long name's ciphertext: `.n` ‖ the characters after `~`.
    static func longNameLink(_ stored: UnsafePointer<CChar>) -> [CChar] {
        var name: [CChar] = [
            CChar(bitPattern: UInt8(ascii: ".")), CChar(bitPattern: UInt8(ascii: "n")),
        ]
        name.append(contentsOf: UnsafeBufferPointer(start: stored + 1, count: 43))
        name.append(0)
        return name
    }

    /// Whether a stored name belongs to the volume: it decrypts, or has the form of a long name.
    func isOurs(_ stored: [UInt8], in state: DirectoryState) -> Bool {
        isOurs(stored, in: state.id)
    }

    func isOurs(_ stored: [UInt8], in directoryID: [UInt8]) -> Bool {
        if stored.first == NameCipher.longNamePrefix { return stored.count == 44 }
        return stored.withUnsafeBytes { decrypt($0, in: directoryID) } != nil
    }

    /// Lends the sealed name, ciphertext ‖ tag.
    private func withSealedName<R>(
        _ name: UnsafeRawBufferPointer, _ directoryID: [UInt8],
        _ body: (UnsafeRawBufferPointer) -> R
    ) -> R {
        withUnsafeTemporaryAllocation(byteCount: 512, alignment: 16) { buffer in
            let base = buffer.baseAddress!
            let nonce = base + 496
            nonce.initializeMemory(as: UInt8.self, repeating: 0, count: 12)
            directoryID.withUnsafeBytes { id in
                cipher.seal(
                    name.baseAddress!, count: name.count, to: base, tag: base + name.count,
                    nonce: nonce, associatedData: id.baseAddress, associatedDataBytes: id.count)
            }
            return body(UnsafeRawBufferPointer(start: base, count: name.count + 16))
        }
    }
}
