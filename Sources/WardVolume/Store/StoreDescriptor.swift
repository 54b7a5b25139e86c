/// A descriptor of the backing store with several owners. The last owner closes it.
package final class StoreDescriptor: Sendable {
    /// Open as long as this object lives, which `with` ensures.
    package let rawValue: Int32
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
