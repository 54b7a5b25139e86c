/// A descriptor of the store's that several hold, closed with the last of them.
final class StoreDescriptor: Sendable {
    /// Open for as long as this object is held, which `with` sees to.
    let rawValue: Int32
    private let storage: any Storage

    init(_ rawValue: Int32, _ storage: any Storage) {
        self.rawValue = rawValue
        self.storage = storage
    }

    deinit { storage.close(rawValue) }

    func with<R, E: Error>(_ body: (Int32) throws(E) -> R) throws(E) -> R {
        defer { withExtendedLifetime(self) {} }
        return try body(rawValue)
    }
}
