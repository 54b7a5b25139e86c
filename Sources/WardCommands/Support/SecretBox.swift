import Synchronization
import WardSystem

/// A secret that closures and optionals can hold; still one owner, wiped with the box.
final class SecretBox: Sendable {
    let secret: SecretBytes
    init(_ secret: consuming SecretBytes) { self.secret = secret }
}

/// A secret on its way to whoever uses it once: taken out, nothing keeps it but the taker.
final class SecretHandover: Sendable {
    private let box: Mutex<SecretBox?>
    init(_ box: SecretBox?) { self.box = Mutex(box) }
    func take() -> SecretBox? { box.withLock { $0.take() } }
}
