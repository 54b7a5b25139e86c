import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Fetches what programs that go through a tree of small files are about to ask for (decision 0070).
///
/// The kernel reads ahead within a file. Who reads many small ones waits for the disk with each: for its inode, and for its
/// first bytes. Where that happened twice in one directory, the files beside those are brought into the store's memory, and
/// where it happened with two directories, those beside them, while the program is busy with the first. Only ciphertext is
/// touched, nothing waits for it, and whatever of it fails is left: who asks then is told.
///
/// Concurrency: any thread. `state` is held for a few steps in memory; the store is called by threads of its own, but for the
/// opening of a directory that is open already.
final class TreeReadAhead: Sendable {
    enum Kind { case files, directories }

    /// What is served within this time, nanoseconds, was in memory. An open file's inode and first page take some 10 µs then.
    static let coldNanoseconds: UInt64 = 40_000
    /// Two that waited within this time belong together.
    static let togetherNanoseconds: UInt64 = 1_000_000_000
    /// For so long after two uses waited at once nothing is fetched.
    static let parallelNanoseconds: UInt64 = 100_000_000
    /// A directory that nobody used for so long is forgotten.
    static let patienceNanoseconds: UInt64 = 2_000_000_000
    /// Of each file: what is larger is read ahead by the kernel.
    static let fileBytes = 64 << 10
    /// Directories with more names are left alone.
    static let mostNames = 4_096
    /// Inodes with neighbouring numbers lie in one block of the store (ext4, XFS), and come with the first that is asked for.
    static let inodesTogether: UInt64 = 16
    /// Directories of which something is known, and names in all of them: some two megabytes.
    static let mostPlans = 64
    static let mostEntries = 16_384
    static let threads = 4
    static let mostJobs = 64
    /// `O_NOATIME` of open(2): a file that nobody has read keeps its time of access.
    private static let reading = O_RDONLY | O_NOFOLLOW | Int32(0o1000000)
    private static let filesPerJob = 8

    private struct Place: Equatable {
        var directory: UInt64
        var kind: Kind
    }

    /// An open directory of the store, for as long as `keeper` is held.
    private struct Directory: @unchecked Sendable {
        // Sendable: a number, and a reference that is only held.
        let descriptor: Int32
        let keeper: AnyObject
    }

    private final class Descriptor: Sendable {
        let rawValue: Int32
        private let storage: any Storage
        init(_ rawValue: Int32, _ storage: any Storage) {
            self.rawValue = rawValue
            self.storage = storage
        }
        deinit { storage.close(rawValue) }
    }

    private struct Known {
        var place: Place
        /// Nil until it was listed.
        var plan: ReadAheadPlan?
        var directory: Directory?
        var lastUse: UInt64
        /// Of directories: the one in which somebody waited for a file, and whether that happened in another one, too.
        var readDirectory: UInt64?
        var readsFiles = false
    }

    private struct State {
        var known: [Known] = []
        /// Who waited, and nothing is known of its directory yet.
        var waited: [(place: Place, inode: UInt64, time: UInt64)] = []

        func index(of place: Place) -> Int? { known.firstIndex { $0.place == place } }

        /// Somebody waited for a file: the next directories beside this one may be wanted with their files.
        mutating func noteFile(in directory: UInt64, below parent: UInt64) {
            guard let index = index(of: Place(directory: parent, kind: .directories)) else {
                return
            }
            if let other = known[index].readDirectory, other != directory {
                known[index].readsFiles = true
            }
            known[index].readDirectory = directory
        }

        /// Returns what has to go for it.
        mutating func add(_ new: Known) -> [Known] {
            known.append(new)
            return shrink(keeping: new.place)
        }

        /// Takes out those that were not used for the longest time, until the rest is not too much.
        mutating func shrink(keeping place: Place) -> [Known] {
            var dropped: [Known] = []
            while known.count > TreeReadAhead.mostPlans
                || known.reduce(0, { $0 + ($1.plan?.count ?? 0) }) > TreeReadAhead.mostEntries,
                let oldest = known.indices.filter({ known[$0].place != place })
                    .min(by: { known[$0].lastUse < known[$1].lastUse })
            {
                dropped.append(known.remove(at: oldest))
            }
            return dropped
        }

        /// Takes out those that nobody used any more.
        mutating func expire(_ time: UInt64) -> [Known] {
            func isOld(_ one: Known) -> Bool {
                time &- one.lastUse > TreeReadAhead.patienceNanoseconds
            }
            guard known.contains(where: isOld) else { return [] }
            defer { known.removeAll(where: isOld) }
            return known.filter(isOld)
        }
    }

    private let storage: any Storage
    private let state = Mutex(State())
    /// Something is known: uses that waited for nothing are noted, too.
    private let isActive = Atomic<Bool>(false)
    private let isStopped: Atomic<Bool>
    private let usesUnderWay = Atomic<Int>(0)
    /// When two uses waited at once.
    private let lastParallel = Atomic<UInt64>(0)
    private let pool = JobPool(name: "ward-ahead", threads: threads, mostWaiting: mostJobs)

    /// Does nothing where it is of no use.
    init(_ storage: any Storage, isUseful: Bool) {
        self.storage = storage
        isStopped = Atomic(!isUseful)
    }

    /// For the volume's end: nothing further is begun, and all is forgotten.
    func stop() {
        isStopped.store(true, ordering: .sequentiallyConsistent)
        let dropped = state.withLock { state in
            defer { state = State() }
            return state.known
        }
        withExtendedLifetime(dropped) {}
    }

    /// Waits until all that was begun is fetched. For tests.
    func drain() { pool.drain() }

    /// Runs what uses an entry of a directory, and tells how long it took, nanoseconds, where that says something to `note`.
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
            // Who asks for several things at once waits for the disk once for all of them.
            if others > 0 { lastParallel.store(end, ordering: .relaxed) }
        } else if !isActive.load(ordering: .relaxed) {
            return (result, nil)
        }
        let isParallel =
            end &- lastParallel.load(ordering: .relaxed) < TreeReadAhead.parallelNanoseconds
        return (result, isParallel ? nil : waited)
    }

    /// An entry of a directory was used, and waited for so long. `parent`: of that directory; nil for the root. `open`: the
    /// backing directory, and what keeps it open.
    func note(
        _ kind: Kind, _ inode: UInt64, in directory: UInt64, below parent: UInt64?, waited: UInt64,
        open: () -> (descriptor: Int32, keeper: AnyObject)?
    ) {
        let time = storage.nanoseconds()
        let place = Place(directory: directory, kind: kind)
        let isCold = waited >= TreeReadAhead.coldNanoseconds
        var isNew = false
        // Their descriptors are closed after the lock.
        var dropped: [Known] = []
        defer { withExtendedLifetime(dropped) {} }
        let (entries, from): ([ReadAheadPlan.Entry], Directory?) = state.withLock { state in
            dropped = state.expire(time)
            if isCold, kind == .files, let parent { state.noteFile(in: directory, below: parent) }
            defer { isActive.store(!state.known.isEmpty, ordering: .relaxed) }
            if let index = state.index(of: place) {
                state.known[index].lastUse = time
                return (state.known[index].plan?.use(inode) ?? [], state.known[index].directory)
            }
            guard isCold else { return ([], nil) }
            state.waited.removeAll { time &- $0.time > TreeReadAhead.togetherNanoseconds }
            guard state.waited.contains(where: { $0.place == place && $0.inode != inode }) else {
                if state.waited.count >= TreeReadAhead.mostPlans { state.waited.removeFirst() }
                state.waited.append((place, inode, time))
                return ([], nil)
            }
            state.waited.removeAll { $0.place == place }
            dropped += state.add(Known(place: place, plan: nil, directory: nil, lastUse: time))
            isNew = true
            return ([], nil)
        }
        if isNew {
            guard let opened = open() else { return forget(place) }
            let directory = Directory(descriptor: opened.descriptor, keeper: opened.keeper)
            let isTaken = run { ahead in
                withExtendedLifetime(directory.keeper) {
                    ahead.list(place, directory, usedLast: inode)
                }
            }
            // Tried again when it is used the next time.
            if !isTaken { forget(place) }
        } else if let from {
            fetch(entries, of: place, from)
        }
    }

    // MARK: On threads of its own

    /// False where too much is waiting already.
    @discardableResult
    private func run(_ body: @escaping @Sendable (TreeReadAhead) -> Void) -> Bool {
        pool.run { [self] in
            if !isStopped.load(ordering: .relaxed) { body(self) }
        }
    }

    private func forget(_ place: Place) {
        let dropped = state.withLock { state in
            state.index(of: place).map { state.known.remove(at: $0) }
        }
        withExtendedLifetime(dropped) {}
    }

    private func list(_ place: Place, _ directory: Directory, usedLast inode: UInt64) {
        guard let own = open(".", in: directory.descriptor, O_DIRECTORY),
            let entries = entries(of: own)
        else { return forget(place) }
        let type = UInt8(place.kind == .files ? DT_REG : DT_DIR)
        let plan = ReadAheadPlan(
            entries.filter { $0.type == type }.map(\.entry),
            place.kind == .files ? .files : .directories)
        fetch(adopt(plan, for: place, directory, usedLast: inode), of: place, directory)
    }

    private func open(
        _ name: UnsafePointer<CChar>, in directory: Int32, _ flags: Int32
    ) -> Descriptor? {
        let opened = try? storage.openat(
            directory, name, TreeReadAhead.reading | flags, mode: 0)
        return opened.map { Descriptor($0, storage) }
    }

    /// What is to be fetched first.
    private func adopt(
        _ plan: ReadAheadPlan, for place: Place, _ directory: Directory, usedLast inode: UInt64?
    ) -> [ReadAheadPlan.Entry] {
        let time = storage.nanoseconds()
        var plan = plan
        let first = inode.map { plan.use($0) } ?? plan.take()
        // What it replaces is closed after the lock.
        var dropped: [Known] = []
        defer { withExtendedLifetime(dropped) {} }
        return state.withLock { state in
            isActive.store(true, ordering: .relaxed)
            guard let index = state.index(of: place) else {
                dropped = state.add(
                    Known(place: place, plan: plan, directory: directory, lastUse: time))
                return first
            }
            // Two threads listed it at once.
            guard state.known[index].plan == nil else { return [] }
            dropped.append(state.known[index])
            state.known[index].plan = plan
            state.known[index].directory = directory
            dropped += state.shrink(keeping: place)
            return first
        }
    }

    private func fetch(
        _ entries: [ReadAheadPlan.Entry], of place: Place, _ directory: Directory
    ) {
        let size = place.kind == .files ? TreeReadAhead.filesPerJob : 1
        for start in stride(from: 0, to: entries.count, by: size) {
            let part = Array(entries[start..<min(start + size, entries.count)])
            run { ahead in
                withExtendedLifetime(directory.keeper) {
                    if place.kind == .files {
                        ahead.fetchFiles(part, of: place, directory)
                    } else {
                        ahead.fetchDirectory(part[0], of: place, directory)
                    }
                }
            }
        }
    }

    private func fetchFiles(
        _ entries: [ReadAheadPlan.Entry], of place: Place, _ directory: Directory
    ) {
        guard isKnown(place) else { return }
        var idle = 0
        for entry in entries {
            let file = open(entry.name, in: directory.descriptor, O_NONBLOCK)
            let isFetched = withExtendedLifetime(file) {
                file.map { !storage.readAhead($0.rawValue, 0..<TreeReadAhead.fileBytes) }
            }
            if isFetched != true { idle += 1 }
        }
        guard idle * 2 > entries.count else { return }
        state.withLock { state in
            if let index = state.index(of: place) { state.known[index].plan?.stop() }
        }
    }

    private func isKnown(_ place: Place) -> Bool {
        state.withLock { $0.index(of: place) != nil }
    }

    /// Names and inodes of a directory, and where files are being read, the first of those in it.
    private func fetchDirectory(
        _ entry: ReadAheadPlan.Entry, of parentPlace: Place, _ parent: Directory
    ) {
        guard isKnown(parentPlace),
            let descriptor = open(entry.name, in: parent.descriptor, O_DIRECTORY),
            let found = entries(of: descriptor)
        else { return }
        let rawValue = descriptor.rawValue
        defer { withExtendedLifetime(descriptor) {} }
        // Directories are not looked at: they lie far from each other, and have a plan of their own where they are wanted.
        let files = found.filter { $0.type == UInt8(DT_REG) }.map(\.entry)
        var last: UInt64?
        for file in files.sorted(by: { $0.inode < $1.inode }) {
            let group = file.inode / TreeReadAhead.inodesTogether
            if isStopped.load(ordering: .relaxed) { return }
            if group != last { _ = try? storage.fstatat(rawValue, file.name) }
            last = group
        }
        let place = Place(directory: entry.inode, kind: .files)
        let readsFiles = state.withLock { state in
            state.index(of: place) == nil
                && state.index(of: parentPlace).map { state.known[$0].readsFiles } ?? false
        }
        guard readsFiles else { return }
        let plan = ReadAheadPlan(files, .files)
        let directory = Directory(descriptor: rawValue, keeper: descriptor)
        fetchFiles(adopt(plan, for: place, directory, usedLast: nil), of: place, directory)
    }

    /// Reads parts of a long directory, each on a thread of its own. `descriptor`: of the directory, open for as long as this takes
    /// to return.
    func fetch(_ parts: [Range<UInt64>], ofListing descriptor: Int32) {
        guard !parts.isEmpty, !isStopped.load(ordering: .relaxed) else { return }
        for part in parts {
            // Each has a position of its own.
            guard let own = open(".", in: descriptor, O_DIRECTORY) else { return }
            run { ahead in
                withExtendedLifetime(own) { ahead.read(part, of: own.rawValue) }
            }
        }
    }

    private func read(_ part: Range<UInt64>, of descriptor: Int32) {
        var offset = part.lowerBound
        while offset < part.upperBound, !isStopped.load(ordering: .relaxed),
            let last = (try? storage.entries(descriptor, from: offset))?.last
        {
            guard last.next > offset else { return }
            offset = last.next
        }
    }

    /// Nil where there are too many, or the store does not say.
    private func entries(
        of directory: Descriptor
    ) -> [(entry: ReadAheadPlan.Entry, type: UInt8)]? {
        var found: [(entry: ReadAheadPlan.Entry, type: UInt8)] = []
        var offset: UInt64 = 0
        while found.count <= TreeReadAhead.mostNames, !isStopped.load(ordering: .relaxed) {
            guard let some = try? storage.entries(directory.rawValue, from: offset) else {
                return nil
            }
            guard let last = some.last else { return found }
            for (entry, _) in some where entry.name.first != UInt8(ascii: ".") {
                var name = entry.name.map { CChar(bitPattern: $0) }
                name.append(0)
                found.append((ReadAheadPlan.Entry(inode: entry.inode, name: name), entry.type))
            }
            offset = last.next
        }
        return nil
    }
}
