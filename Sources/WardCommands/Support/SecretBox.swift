import WardSystem

/// A secret that closures and optionals can hold; still one owner, wiped with the box.
final class SecretBox: Sendable {
    let secret: SecretBytes
    init(_ secret: consuming SecretBytes) { self.secret = secret }
}
