import Glibc
import Synchronization
import WardSystem

/// Facts that requests have learned of an open file. Needs no lock.
struct FileNotes: ~Copyable, Sendable {
    /// No finding in the file may be excused by a doubtful epoch any more: it was made, emptied or
    /// mended since.
    let isBeyondDoubt: AtomicValue<Bool>
    /// The file was seen to be an SQLite database. Never becomes false again.
    let isKnownDatabase = AtomicValue(false)
    /// Reads that were refused while the file's class is closed.
    let refusedReads = Refusals.Count()
    private let modeBits = AtomicValue<mode_t>(S_ISUID | S_ISGID)
    /// The judgement of the file's class. It changes under the file's lock, or before another
    /// thread knows the file.
    let seal: AtomicValue<ClassSeals.Judgement>
    /// The reason why the class of a file without a header counts.
    let origin: Vouch

    init(isBeyondDoubt: Bool, _ seal: ClassSeals.Judgement, _ origin: Vouch) {
        self.isBeyondDoubt = AtomicValue(isBeyondDoubt)
        self.seal = AtomicValue(seal)
        self.origin = origin
    }

    /// Set-user-ID and set-group-ID bits that the kernel may know of.
    var setIDBits: mode_t {
        get { modeBits.value }
        nonmutating set { modeBits.value = newValue & (S_ISUID | S_ISGID) }
    }

    /// Takes the bits from a backing file's `st_mode`. A marked mode does not show them: both are
    /// presumed until `dropPrivileges` reads the true mode.
    func presumeSetIDBits(backing mode: mode_t) {
        setIDBits = BackingMode.isMarked(mode) ? S_ISUID | S_ISGID : mode
    }
}

/// When the content of an open file changed, and whether programs know.
struct FileTimes: ~Copyable, Sendable {
    /// When content last changed, nanoseconds of the backing store's coarse clock; 0: not since the
    /// open.
    private let change = AtomicValue<UInt64>(0)
    private let shown = AtomicValue(false)

    var lastChange: UInt64 { change.value }
    /// A `stat` was answered since content last changed: the times must not move any more.
    var wereShown: Bool { shown.value }

    /// Content changed.
    func changed(at nanoseconds: UInt64) {
        change.value = nanoseconds
        shown.value = false
    }

    /// The times were set, and content stayed.
    func touched() { shown.value = false }

    /// The times are about to be shown. Needs no lock.
    func show() { shown.value = true }
}

/// The number of uses of an open file.
struct FileUses: ~Copyable, Sendable {
    /// Handles through which the kernel may write mapped pages back.
    let mappableHandles = Atomic<Int>(0)
    /// Handles that the kernel holds or is about to get: what "open" means to a lock. The daemon's
    /// own uses don't count, because a program can make them follow each other without end.
    let kernelHandles = Atomic<Int>(0)
    /// All uses, by handles and by the daemon. Guarded by the node's `openLock`.
    let all = AtomicValue(0)
}

/// Pages that were accepted at a lock and are not stored yet (`PendingStores`). Needs no lock.
struct PendingPages: ~Copyable, Sendable {
    /// Readers look in `PendingStores` first while there are some.
    let count = Atomic<Int>(0)
    /// The `errno` with which some of these pages could not be stored, until a sync reports it; 0:
    /// none.
    let failure = Atomic<Int32>(0)

    var areNone: Bool { @inline(__always) get { count.load(ordering: .acquiring) == 0 } }
}
