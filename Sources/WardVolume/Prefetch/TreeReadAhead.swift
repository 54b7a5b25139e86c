import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Fetches what programs that go through a tree of small files are about to ask for (decision
/// 0070).
///
/// The kernel reads ahead within a file. A program that reads many small files waits for the disk
/// twice with each: for the inode and for the first bytes. After two such waits in one directory,
/// the files beside these are brought into the backing store's memory. After waits in two
/// directories, the directories beside them follow, while the program is busy with the first. Only
/// ciphertext is touched and no request waits for it. Errors are ignored: a program that asks for
/// the file gets them.
///
/// Concurrency: any thread. `state` is held for a few steps in memory. Threads of the pool call the
/// backing store; a request only opens a directory that is open already.
final class TreeReadAhead: Sendable {
    enum Kind { case files, directories }

    /// A use that takes less, nanoseconds, was served from memory. An open file's inode and first
    /// page then take about 10 µs.
    static let coldNanoseconds: UInt64 = 40_000
    /// Two waits within this time, nanoseconds, belong together.
    static let togetherNanoseconds: UInt64 = 1_000_000_000
    /// Nothing is fetched for so long, nanoseconds, after two uses waited at the same time.
    static let parallelNanoseconds: UInt64 = 100_000_000
    /// A directory without a use for so long, nanoseconds, is forgotten.
    static let patienceNanoseconds: UInt64 = 2_000_000_000
    /// Bytes of each file; the kernel reads ahead in larger ones.
    static let fileBytes = 64 << 10
    /// Directories with more names are left alone.
    static let mostNames = 4_096
    /// A program that lists a directory gets the attributes of its files with the names
    /// (`readdirplus`), or asks for them. The backing store takes some microseconds for each inode
    /// that is not in memory. In directories with up to this many files each inode is read ahead.
    static let mostInodes = 512
    /// In directories with more files, one inode of each such group is read: neighbouring numbers
    /// lie in one block of the backing store (ext4, XFS).
    static let inodesTogether: UInt64 = 16
    /// Whether the directory is still in use is checked after so many inodes.
    private static let inodesBetweenLooks = 32
    /// Limits for known directories and the names in all of them: about two megabytes.
    static let mostPlans = 64
    static let mostEntries = 16_384
    static let threads = 4
    static let mostJobs = 64
    /// `O_NOATIME` of open(2): a file that no program has read keeps its time of access.
    private static let reading = O_RDONLY | O_NOFOLLOW | Int32(0o1000000)
    private static let filesPerJob = 8

    private typealias Place = KnownDirectories.Place

    private let storage: any Storage
    private let state = Mutex(KnownDirectories())
    /// A directory is known: uses that did not wait are noted, too.
    private let isActive = Atomic<Bool>(false)
    private let isStopped: Atomic<Bool>
    private let usesUnderWay = Atomic<Int>(0)
    /// When two uses last waited at the same time.
    private let lastParallel = Atomic<UInt64>(0)
    private let pool = JobPool(name: "ward-ahead", threads: threads, mostWaiting: mostJobs)

    /// `isUseful`: false makes this do nothing.
    init(_ storage: any Storage, isUseful: Bool) {
        self.storage = storage
        isStopped = Atomic(!isUseful)
    }

    /// Begins nothing further and forgets all. Called at the volume's end.
    func stop() {
        isStopped.store(true, ordering: .sequentiallyConsistent)
        withState { $0.forgetAll() }
    }

    /// Forgets a directory that is being removed, with its descriptor.
    func forget(directory: UInt64) {
        guard isActive.load(ordering: .relaxed) else { return }
        withState { state in
            for kind in [Kind.files, .directories] {
                state.forget(Place(directory: directory, kind: kind))
            }
        }
    }

    private func withState<R: Sendable>(_ body: (inout KnownDirectories) -> R) -> R {
        let (result, dropped) = state.withLock { state in
            let result = body(&state)
            isActive.store(!state.isEmpty, ordering: .relaxed)
            return (result, state.takeDropped())
        }
        withExtendedLifetime(dropped) {}
        return result
    }

    /// Waits until all fetches are done. For tests.
    func drain() { pool.drain() }

    /// Runs `use`, which uses an entry of a directory. Returns how long it took, nanoseconds, where
    /// `note` has to know.
    @inline(__always)
    func time<R>(_ use: () throws(Errno) -> R) throws(Errno) -> (R, waited: UInt64?) {
        guard !isStopped.load(ordering: .relaxed) else { return (try use(), nil) }
        let others = usesUnderWay.wrappingAdd(1, ordering: .relaxed).oldValue
        defer { usesUnderWay.wrappingSubtract(1, ordering: .relaxed) }
        let begin = storage.nanoseconds()
        let result = try use()
        let end = storage.nanoseconds()
        let waited = end &- begin
        if waited >= TreeReadAhead.coldNanoseconds {
            // A program that asks for several entries at once waits for the disk once for all of
            // them.
            if others > 0 { lastParallel.store(end, ordering: .relaxed) }
        } else if !isActive.load(ordering: .relaxed) {
            return (result, nil)
        }
        let isParallel =
            end &- lastParallel.load(ordering: .relaxed) < TreeReadAhead.parallelNanoseconds
        return (result, isParallel ? nil : waited)
    }

    /// Notes that a program used an entry of a directory. `waited`: nanoseconds. `parent`: the
    /// directory's parent; nil for the root. `open`: returns the backing directory.
    func note(
        _ kind: Kind, _ inode: UInt64, in directory: UInt64, below parent: UInt64?, waited: UInt64,
        open: () -> StoreDescriptor?
    ) {
        let place = Place(directory: directory, kind: kind)
        let isCold = waited >= TreeReadAhead.coldNanoseconds
        let time = storage.nanoseconds()
        switch withState({
            $0.use(inode, of: place, below: parent, isCold: isCold, at: time)
        }) {
        case .nothing: break
        case .entries(let entries, let directory): fetch(entries, of: place, directory)
        case .listing:
            guard let directory = open(),
                run({ ahead in ahead.list(place, directory) })
            else {
                // The next use tries again.
                return withState { $0.forget(place) }
            }
        }
    }

    // MARK: On threads of its own

    /// False where too many jobs wait already.
    @discardableResult
    private func run(_ body: @escaping @Sendable (TreeReadAhead) -> Void) -> Bool {
        pool.run { [self] in
            if !isStopped.load(ordering: .relaxed) { body(self) }
        }
    }

    private func open(
        _ name: UnsafePointer<CChar>, in directory: Int32, _ flags: Int32
    ) -> StoreDescriptor? {
        let opened = try? storage.openat(
            directory, name, TreeReadAhead.reading | flags, mode: 0)
        return opened.map { StoreDescriptor($0, storage) }
    }

    private func list(_ place: Place, _ directory: StoreDescriptor) {
        guard let own = directory.with({ open(".", in: $0, O_DIRECTORY) }),
            let entries = entries(of: own, place.kind)
        else { return withState { $0.forget(place) } }
        let plan = ReadAheadPlan(entries, place.kind == .files ? .files : .directories)
        let listing = KnownDirectories.Listing(plan: plan, directory: directory)
        fetch(withState { $0.adopt(listing, of: place) }, of: place, directory)
    }

    private func fetch(
        _ entries: [ReadAheadPlan.Entry], of place: Place, _ directory: StoreDescriptor
    ) {
        let size = place.kind == .files ? TreeReadAhead.filesPerJob : 1
        for start in stride(from: 0, to: entries.count, by: size) {
            let part = Array(entries[start..<min(start + size, entries.count)])
            run { ahead in
                guard ahead.withState({ $0.contains(place) }) else { return }
                switch place.kind {
                case .files: ahead.fetchFiles(part, of: place, directory)
                case .directories: ahead.fetchDirectory(part[0], of: place, directory)
                }
            }
        }
    }

    private func fetchFiles(
        _ entries: [ReadAheadPlan.Entry], of place: Place, _ directory: StoreDescriptor
    ) {
        let fetched = entries.count { entry in
            let file = directory.with { open(entry.name, in: $0, O_NONBLOCK) }
            return file?.with { !storage.readAhead($0, 0..<TreeReadAhead.fileBytes) } ?? false
        }
        if fetched * 2 < entries.count { withState { $0.stop(place) } }
    }

    /// Fetches names and inodes of a directory and, where programs read files, its first files.
    private func fetchDirectory(
        _ entry: ReadAheadPlan.Entry, of parentPlace: Place, _ parent: StoreDescriptor
    ) {
        guard let directory = parent.with({ open(entry.name, in: $0, O_DIRECTORY) }),
            let files = entries(of: directory, .files)
        else { return }
        let plan = ReadAheadPlan(files, .files, withState { $0.order(of: parentPlace) })
        // Subdirectories are left out: their inodes lie far from each other, and they get a plan of
        // their own.
        let together =
            plan.entries.count <= TreeReadAhead.mostInodes ? 1 : TreeReadAhead.inodesTogether
        var last: UInt64?
        for (number, file) in plan.entries.enumerated() {
            if isStopped.load(ordering: .relaxed) { return }
            if number % TreeReadAhead.inodesBetweenLooks == 0,
                !withState({ $0.contains(parentPlace) })
            {
                return
            }
            let group = file.inode / together
            if group != last { directory.with { _ = try? storage.fstatat($0, file.name) } }
            last = group
        }
        let place = Place(directory: entry.inode, kind: .files)
        guard withState({ $0.readsFiles(in: parentPlace) }) else { return }
        let listing = KnownDirectories.Listing(plan: plan, directory: directory)
        let time = storage.nanoseconds()
        let first = withState { $0.expect(listing, of: place, at: time) }
        fetchFiles(first, of: place, directory)
    }

    /// Returns the entries of one kind; nil where there are too many names, or the directory can't
    /// be read.
    private func entries(
        of directory: StoreDescriptor, _ kind: Kind
    ) -> [ReadAheadPlan.Entry]? {
        let type = UInt8(kind == .files ? DT_REG : DT_DIR)
        var found: [ReadAheadPlan.Entry] = []
        var names = 0
        var offset: UInt64 = 0
        while names <= TreeReadAhead.mostNames, !isStopped.load(ordering: .relaxed) {
            guard let some = directory.with({ try? storage.entries($0, from: offset) }) else {
                return nil
            }
            guard let last = some.last else { return found }
            for (entry, _) in some where entry.name.first != UInt8(ascii: ".") {
                names += 1
                guard entry.type == type else { continue }
                found.append(
                    ReadAheadPlan.Entry(inode: entry.inode, name: entry.name.zeroTerminated))
            }
            offset = last.next
        }
        return nil
    }

    // MARK: Long listings

    /// Reads parts of a long directory, each on a thread of its own. `descriptor`: of the
    /// directory, open until this returns.
    func fetch(_ parts: [Range<UInt64>], ofListing descriptor: Int32) {
        guard !parts.isEmpty, !isStopped.load(ordering: .relaxed) else { return }
        for part in parts {
            // Each thread needs a position of its own.
            guard let own = open(".", in: descriptor, O_DIRECTORY) else { return }
            run { ahead in ahead.read(part, of: own) }
        }
    }

    private func read(_ part: Range<UInt64>, of directory: StoreDescriptor) {
        var offset = part.lowerBound
        while offset < part.upperBound, !isStopped.load(ordering: .relaxed),
            let next = directory.with({ (try? storage.passEntries($0, from: offset)) ?? nil }),
            next > offset
        {
            offset = next
        }
    }
}
