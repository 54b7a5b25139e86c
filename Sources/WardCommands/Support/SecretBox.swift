import Synchronization
import WardSystem

/// Lets closures and optionals hold a secret. The box is its only owner and wipes it.
final class SecretBox: Sendable {
    let secret: SecretBytes
    init(_ secret: consuming SecretBytes) { self.secret = secret }
}

/// Hands a secret over to one user; after `take` only that user holds it.
final class SecretHandover: Sendable {
    private let box: Mutex<SecretBox?>
    init(_ box: SecretBox?) { self.box = Mutex(box) }
    func take() -> SecretBox? { box.withLock { $0.take() } }
}
