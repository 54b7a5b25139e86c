import Synchronization
import WardSystem

/// The key of an open file while it is in memory, guarded by its own lock.
final class FileKey: @unchecked Sendable {
    // Sendable: `lock` guards the key.
    private var key: SecretBytes?
    private let current = Atomic<UInt64>(0)
    private let lock = Lock(.key)
    private static let serials = Atomic<UInt64>(0)

    /// Names the key in the contexts' caches. No two keys have the same number; 0 is no key.
    var serial: UInt64 { current.load(ordering: .acquiring) }

    var isInMemory: Bool { serial != 0 }

    /// Takes over a key. The content lock is held.
    func set(_ newKey: consuming SecretBytes) {
        var taken: SecretBytes? = consume newKey
        lock.withLock {
            key = taken.take()
            current.store(FileKey.nextSerial(), ordering: .releasing)
        }
    }

    /// Wipes the key. Called by the last close, or after the gate closed and all contexts were
    /// drained.
    func forget() {
        lock.withLock {
            current.store(0, ordering: .releasing)
            key = nil
        }
    }

    /// Lends the key. Calls `load` where it is not in memory. The content lock is held.
    func withKey<R>(
        load: () throws(Errno) -> SecretBytes, _ body: (borrowing SecretBytes) throws(Errno) -> R
    ) throws(Errno) -> R {
        try lock.withLock { () throws(Errno) in
            if key == nil {
                key = try load()
                current.store(FileKey.nextSerial(), ordering: .releasing)
            }
            return try body(key!)
        }
    }

    private static func nextSerial() -> UInt64 {
        serials.wrappingAdd(1, ordering: .relaxed).newValue
    }
}
