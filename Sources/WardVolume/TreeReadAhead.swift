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
/// Concurrency: any thread. `state` is held for a few steps in memory; all calls to the store are made by threads of its own.
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
    /// Directories that take more than this of the store themselves, bytes, are not listed for it.
    static let largestDirectoryBytes = 256 << 10
    /// Inodes with neighbouring numbers lie in one block of the store (ext4, XFS), and come with the first that is asked for.
    static let inodesTogether: UInt64 = 16
    /// Directories of which something is known, and names in all of them: some two megabytes.
    static let mostPlans = 64
    static let mostEntries = 16_384
    static let threads = 4
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
    private let queues: [BackgroundQueue]
    private let turn = Atomic<Int>(0)

    /// Does nothing where the store keeps nothing on a disk.
    init(_ storage: any Storage) {
        self.storage = storage
        isStopped = Atomic(!storage.waitsForDisk)
        queues = (0..<TreeReadAhead.threads).map { _ in BackgroundQueue(name: "ward-ahead") }
    }

    /// For the volume's end: nothing further is begun.
    func stop() { isStopped.store(true, ordering: .relaxed) }

    /// Waits until all that was begun is fetched. For tests.
    func drain() { for queue in queues + queues { queue.drain() } }

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

    /// An entry of a directory, which is one of `parent`'s, was used, and waited for so long. `open`: the backing directory, and
    /// what keeps it open.
    func note(
        _ kind: Kind, _ inode: UInt64, in directory: UInt64, below parent: UInt64, waited: UInt64,
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
            if isCold, kind == .files { state.noteFile(in: directory, below: parent) }
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
            run { ahead in
                withExtendedLifetime(directory.keeper) {
                    ahead.list(place, directory, usedLast: inode)
                }
            }
        } else if let from {
            fetch(entries, of: place, from)
        }
    }

    // MARK: On threads of its own

    private func run(_ body: @escaping @Sendable (TreeReadAhead) -> Void) {
        let next = turn.wrappingAdd(1, ordering: .relaxed).newValue & Int.max
        queues[next % queues.count].run { [self] in
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
        guard let entries = entries(of: directory.descriptor) else { return forget(place) }
        let type = UInt8(place.kind == .files ? DT_REG : DT_DIR)
        let plan = ReadAheadPlan(
            entries.filter { $0.type == type }.map(\.entry),
            place.kind == .files ? .files : .directories)
        fetch(adopt(plan, for: place, directory, usedLast: inode), of: place, directory)
    }

    /// What is to be fetched first.
    private func adopt(
        _ plan: ReadAheadPlan, for place: Place, _ directory: Directory, usedLast inode: UInt64?
    ) -> [ReadAheadPlan.Entry] {
        let time = storage.nanoseconds()
        var plan = plan
        let first = inode.map { plan.use($0) } ?? plan.take()
        let dropped: [Known] = state.withLock { state in
            isActive.store(true, ordering: .relaxed)
            guard let index = state.index(of: place) else {
                return state.add(
                    Known(place: place, plan: plan, directory: directory, lastUse: time))
            }
            state.known[index].plan = plan
            state.known[index].directory = directory
            return state.shrink(keeping: place)
        }
        withExtendedLifetime(dropped) {}
        return first
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
        var inMemory = 0
        for entry in entries {
            guard
                let descriptor = try? storage.openat(
                    directory.descriptor, entry.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
            else { continue }
            if storage.readAhead(descriptor, 0..<TreeReadAhead.fileBytes) { inMemory += 1 }
            storage.close(descriptor)
        }
        guard inMemory * 2 > entries.count else { return }
        state.withLock { state in
            if let index = state.index(of: place) { state.known[index].plan?.stop() }
        }
    }

    /// Names and inodes of a directory, and where files are being read, the first of those in it.
    private func fetchDirectory(
        _ entry: ReadAheadPlan.Entry, of parentPlace: Place, _ parent: Directory
    ) {
        guard
            let rawValue = try? storage.openat(
                parent.descriptor, entry.name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
        else { return }
        let descriptor = Descriptor(rawValue, storage)
        defer { withExtendedLifetime(descriptor) {} }
        guard let found = entries(of: rawValue) else { return }
        // Directories are not looked at: they lie far from each other, and have a plan of their own where they are wanted.
        let files = found.filter { $0.type == UInt8(DT_REG) }.map(\.entry)
        var last: UInt64?
        for file in files.sorted(by: { $0.inode < $1.inode }) {
            let group = file.inode / TreeReadAhead.inodesTogether
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
            guard
                let rawValue = try? storage.openat(descriptor, ".", O_RDONLY | O_DIRECTORY, mode: 0)
            else { return }
            let own = Descriptor(rawValue, storage)
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
        of descriptor: Int32
    ) -> [(entry: ReadAheadPlan.Entry, type: UInt8)]? {
        guard let status = try? storage.fstat(descriptor),
            status.st_size <= TreeReadAhead.largestDirectoryBytes
        else { return nil }
        var found: [(entry: ReadAheadPlan.Entry, type: UInt8)] = []
        let isListed: Void? = try? storage.list(descriptor) { entry in
            var name = entry.name.map { CChar(bitPattern: $0) }
            name.append(0)
            found.append((ReadAheadPlan.Entry(inode: entry.inode, name: name), entry.type))
        }
        return isListed == nil ? nil : found
    }
}
