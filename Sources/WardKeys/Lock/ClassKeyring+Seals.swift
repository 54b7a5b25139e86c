import WardFormat

// The seals of classes (docs/format.md §6.2). Their key is in memory while class C's key is.
extension ClassKeyring {
    /// The first `count` bytes of the seal of `message`. Nil without the seal key.
    package func seal(_ message: [UInt8], count: Int) -> [UInt8]? {
        guard hasSealKey else { return nil }
        return withSealKey { ClassSeal.make(message, key: $0, count: count) }
    }

    /// Whether `seal` is the beginning of the seal of `message`. False without the seal key.
    package func isSeal(_ seal: [UInt8], of message: [UInt8]) -> Bool {
        guard hasSealKey else { return false }
        return withSealKey { ClassSeal.verify(seal, of: message, key: $0) } ?? false
    }
}
