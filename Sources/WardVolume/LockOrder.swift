import Glibc

/// The mutexes of a volume in the order in which threads take them (docs/architecture.md, "What
/// owns what"). A thread that holds one takes only later ones.
///
/// Debug builds check the order at each `Lock`, `ReadWriteLock` and `ContentLock`. A `Mutex` has no
/// rank: it is held for a few steps in memory.
enum LockRank: UInt, CaseIterable {
    // Line 1.
    case capsules, directoryHandle, longTargets, directoryMoves, record, longNames
    // Line 2.
    case durablePoint, storeSync
    // Line 3.
    case open, file
    // Line 4.
    case streaming, storeIsTold
    // Line 5.
    case contexts, content
    // Line 6.
    case eviction, openNodes, key
    /// Line 7: every other mutex, for a few steps in memory.
    case memory

    /// The name in the document.
    var name: String {
        switch self {
        case .capsules: "Capsules.beginning"
        case .directoryHandle: "DirectoryHandle.lock"
        case .longTargets: "NameTree.longTargets"
        case .directoryMoves: "NameTree.directoryMoves"
        case .record: "DirectoryState.recordLock"
        case .longNames: "NameTree.longNames"
        case .durablePoint: "Durability.pointLock"
        case .storeSync: "Durability.syncLock"
        case .open: "Node.openLock"
        case .file: "OpenFile.lock"
        case .streaming: "Streaming.turn"
        case .storeIsTold: "StreamedWrites.isTold"
        case .contexts: "WorkerContexts.lock"
        case .content: "a content lock"
        case .eviction: "Evictions.lock"
        case .openNodes: "OpenNodes.lock"
        case .key: "FileKey.lock"
        case .memory: "a mutex for a few steps in memory"
        }
    }
}

/// The exceptions to the order. The document says why they can't deadlock.
enum LockOrderException {
    /// `storeLater` takes `openLock` inside `OpenFile.lock`.
    case storeLater
    /// An eviction tries `OpenFile.lock` under `OpenNodes.lock`.
    case eviction
    /// An exchange of two files across directories takes both `OpenFile.lock`.
    case exchange

    /// The later ranks that a thread may hold here.
    var excused: [LockRank] {
        switch self {
        case .storeLater: [.file]
        case .eviction: [.eviction, .openNodes]
        case .exchange: [.file]
        }
    }
}

/// The ranks that a thread holds.
struct HeldLocks: Equatable {
    /// One bit for each rank.
    private(set) var bits: UInt

    init(bits: UInt) { self.bits = bits }

    init(_ ranks: [LockRank] = []) {
        bits = 0
        for rank in ranks { insert(rank) }
    }

    mutating func insert(_ rank: LockRank) { bits |= 1 << rank.rawValue }
    mutating func remove(_ rank: LockRank) { bits &= ~(1 << rank.rawValue) }

    /// Returns the last rank held that forbids to take `rank` now; nil where the order permits it.
    func violation(taking rank: LockRank, _ exception: LockOrderException? = nil) -> LockRank? {
        var later = HeldLocks(bits: bits & (UInt.max << rank.rawValue))
        for excused in exception?.excused ?? [] { later.remove(excused) }
        return later.last
    }

    private var last: LockRank? {
        bits == 0 ? nil : LockRank(rawValue: UInt(UInt.bitWidth - 1 - bits.leadingZeroBitCount))
    }
}

#if DEBUG || CHECKED
    /// The place of one lock in the order. Ends the process where a thread takes it out of order.
    struct LockPlace {
        private let rank: LockRank

        init(_ rank: LockRank) { self.rank = rank }

        func willTake(_ exception: LockOrderException? = nil) {
            var held = LockPlace.heldHere
            if let other = held.violation(taking: rank, exception) {
                preconditionFailure("lock order: \(rank.name) is taken inside \(other.name)")
            }
            held.insert(rank)
            LockPlace.heldHere = held
        }

        func didGiveBack() { LockPlace.heldHere.remove(rank) }

        private static let key = {
            var key = pthread_key_t()
            precondition(pthread_key_create(&key, nil) == 0, "a process has keys for each thread")
            return key
        }()

        /// The ranks that the running thread holds. The bits themselves are the thread's value of
        /// the key, so there is nothing to free.
        static var heldHere: HeldLocks {
            get { HeldLocks(bits: UInt(bitPattern: pthread_getspecific(key))) }
            set { pthread_setspecific(key, UnsafeRawPointer(bitPattern: newValue.bits)) }
        }
    }
#else
    /// Empty: only debug builds and the build of the tests check the order.
    struct LockPlace {
        @inline(__always) init(_ rank: LockRank) {}
        @inline(__always) func willTake(_ exception: LockOrderException? = nil) {}
        @inline(__always) func didGiveBack() {}
    }
#endif
