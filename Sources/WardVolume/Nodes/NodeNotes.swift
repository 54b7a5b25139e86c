import Synchronization
import WardFormat

/// Facts that requests have learned of a node. Needs no lock.
struct NodeNotes: ~Copyable, Sendable {
    /// Directories: a listing had to leave a name out. The kernel must keep no part of it:
    /// completed with a part of another listing, it would lack that name without an error. Stays
    /// until the kernel forgets the directory.
    let hasUnreadableName = AtomicValue(false)
    /// This mount made the file without an ACL to inherit, and it has got neither ACL nor
    /// capabilities since. The kernel asks for both at the first write and the first chmod.
    let isFresh = AtomicValue(false)
    /// The file was seen with several names; some of them may never have been looked up.
    let hasSeveralNames = AtomicValue(false)
    /// The kernel still knows a name that the store does not have any more (format 2).
    let hasForgottenNames = AtomicValue(false)
    /// See `Node.isSuperseded`.
    let isSuperseded = AtomicValue(false)
}

/// The class of a node. Needs no lock.
struct NodeClasses: ~Copyable, Sendable {
    /// The class as last read from or written to the backing store; nil for unknown.
    let known = AtomicValue<ProtectionClass?>(nil)
    /// The stronger class that a program asked for while the file had content, and did not get.
    let refused = AtomicValue<ProtectionClass?>(nil)
}

/// The pages of a file in the kernel's cache. Needs no lock.
struct CachedPages: ~Copyable, Sendable {
    /// Content may have entered the cache since the last eviction.
    let exist = Atomic<Bool>(false)
    /// Pages of refused writes are about to be dropped (`Volume.dropRefused`).
    let isDroppingRefused = Atomic<Bool>(false)
}

/// The names of a node that may not be durable. Needs no lock.
struct NameSyncs: ~Copyable, Sendable {
    /// The number of names made, and the number of these whose directories were synced. A flag
    /// would not do: a sync that is under way would clear it for a name that it does not cover.
    private let made = Atomic<UInt32>(0)
    private let synced = Atomic<UInt32>(0)
    /// Directories: the epoch in which the kernel last forgot a node below with unsynced names. A
    /// node that is found again by such a name does not know that the name is unsynced.
    let forgottenEpoch = AtomicValue<UInt32>(0)

    func noteMade() { made.wrappingAdd(1, ordering: .releasing) }

    /// The value for `noteSynced` after a sync; nil where all names are synced.
    var unsynced: UInt32? {
        let made = made.load(ordering: .acquiring)
        return made == synced.load(ordering: .acquiring) ? nil : made
    }

    func noteSynced(_ made: UInt32) { synced.store(made, ordering: .releasing) }
}
