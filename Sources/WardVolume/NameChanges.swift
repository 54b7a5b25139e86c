import Synchronization
import WardSystem

/// Removals and moves of names that are under way. Between the store's name and what nodes know of it there is a moment, longer
/// on a machine with much to do: who met it, waits for its end or looks again.
final class NameChanges: Sendable {
    private let begun = Atomic<UInt64>(0)
    private let ended = Atomic<UInt64>(0)

    func begin() { begun.wrappingAdd(1, ordering: .sequentiallyConsistent) }
    func end() { ended.wrappingAdd(1, ordering: .sequentiallyConsistent) }

    var areUnderWay: Bool {
        ended.load(ordering: .sequentiallyConsistent)
            != begun.load(ordering: .sequentiallyConsistent)
    }

    /// For `isQuiet(since:)`; nil while some are under way.
    var quietState: UInt64? {
        let state = begun.load(ordering: .sequentiallyConsistent)
        return ended.load(ordering: .sequentiallyConsistent) == state ? state : nil
    }

    /// None was under way then, and none has begun since.
    func isQuiet(since state: UInt64?) -> Bool {
        state == begun.load(ordering: .sequentiallyConsistent)
    }
}

/// A descriptor of a file that has no name any more, for whoever found it by the one it had.
final class KeptDescriptor: Sendable {
    let rawValue: Int32
    /// In which it had that name.
    let directory: DirectoryState
    private let storage: any Storage

    init(_ rawValue: Int32, in directory: DirectoryState, _ storage: any Storage) {
        self.rawValue = rawValue
        self.directory = directory
        self.storage = storage
    }

    deinit { storage.close(rawValue) }
}
