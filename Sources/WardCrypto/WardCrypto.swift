// WardCrypto: the primitives of ward, each a thin call into a well-kept library (BoringSSL inside
// swift-crypto). None of the algorithms is ward's own.
//
// `AEADContext` seals and opens, `AESKeyWrap` wraps file keys, `KeyDerivation` and `Scrypt` derive,
// `X25519` and `OnePassDiffieHellman` serve class B. Secrets come and go as `SecretBytes`.
// `SelfTest.run()` comes before everything. Swift can't name BoringSSL's types, so contexts are
// opaque memory in the secret heap.

import Crypto  // links BoringSSL's objects; see CWardLinux/ward_boringssl.h

/// A failure with a key or a ciphertext. It never tells which inner part failed.
public enum CryptoError: Error, Equatable, Sendable {
    /// The tag does not match: wrong key, wrong associated data, or changed ciphertext.
    case authenticationFailed
    /// A public key of small order: the shared secret would be zero (RFC 7748 §6.1).
    case invalidPublicKey
    /// No memory could be locked for the result (`RLIMIT_MEMLOCK`).
    case outOfLockedMemory
    /// Parameters that the library refuses (scrypt costs, lengths).
    case invalidParameters
}
