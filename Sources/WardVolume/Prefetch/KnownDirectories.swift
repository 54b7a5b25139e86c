/// The directories in which programs recently waited for the disk, and the entries of each that
/// were fetched (decision 0070).
///
/// A value. Dropped entries hold their descriptors until `takeDropped`: closing is a system call,
/// and is done without the lock around this value.
struct KnownDirectories {
    struct Place: Equatable {
        var directory: UInt64
        var kind: TreeReadAhead.Kind
    }

    struct Listing {
        var plan: ReadAheadPlan
        let directory: StoreDescriptor
    }

    /// The caller's next step after a use.
    enum Wish {
        case nothing
        /// The caller has to list the directory and call `adopt`, or `forget` where it can't be
        /// listed.
        case listing
        case entries([ReadAheadPlan.Entry], in: StoreDescriptor)
    }

    struct Known {
        fileprivate let place: Place
        fileprivate var listing: Listing?
        fileprivate var lastUse: UInt64
        /// The last two inodes that were used before the listing was there.
        fileprivate var used: [UInt64]
        /// Kind `directories`: the subdirectory in which a program last waited for a file, and
        /// whether that happened in several.
        fileprivate var readDirectory: UInt64?
        fileprivate var readsFiles = false
    }

    private var known: [Known] = []
    /// Uses that waited in directories that are not known yet.
    private var waited: [(place: Place, inode: UInt64, time: UInt64)] = []
    private var dropped: [Known] = []

    var isEmpty: Bool { known.isEmpty }

    func contains(_ place: Place) -> Bool { index(of: place) != nil }

    /// Kind `directories`: whether programs also read the files in the subdirectories.
    func readsFiles(in place: Place) -> Bool {
        index(of: place).map { known[$0].readsFiles } ?? false
    }

    private func index(of place: Place) -> Int? { known.firstIndex { $0.place == place } }

    // MARK: Uses

    /// Notes the use of an entry. `isCold`: the use waited for the disk. `parent`: the directory's
    /// parent; nil for the root.
    mutating func use(
        _ inode: UInt64, of place: Place, below parent: UInt64?, isCold: Bool, at time: UInt64
    ) -> Wish {
        drop { time &- $0.lastUse > TreeReadAhead.patienceNanoseconds }
        if isCold, place.kind == .files, let parent {
            noteFile(in: place.directory, below: parent)
        }
        if place.kind == .files, let parent,
            let index = index(of: Place(directory: parent, kind: .directories))
        {
            known[index].lastUse = time
        }
        if let index = index(of: place) {
            known[index].lastUse = time
            if known[index].listing == nil {
                known[index].used = known[index].used.suffix(1) + [inode]
                return .nothing
            }
            guard let entries = known[index].listing?.plan.use(inode), !entries.isEmpty else {
                return .nothing
            }
            return .entries(entries, in: known[index].listing!.directory)
        }
        guard isCold else { return .nothing }
        waited.removeAll { time &- $0.time > TreeReadAhead.togetherNanoseconds }
        guard let before = waited.last(where: { $0.place == place && $0.inode != inode }) else {
            if waited.count >= TreeReadAhead.mostPlans { waited.removeFirst() }
            waited.append((place, inode, time))
            return .nothing
        }
        waited.removeAll { $0.place == place }
        known.append(Known(place: place, lastUse: time, used: [before.inode, inode]))
        shrink(keeping: place)
        return .listing
    }

    /// Notes that a program waited for a file of `directory`. If that happens in several, the next
    /// subdirectories may be fetched with their files.
    private mutating func noteFile(in directory: UInt64, below parent: UInt64) {
        guard let index = index(of: Place(directory: parent, kind: .directories)) else { return }
        if let other = known[index].readDirectory, other != directory {
            known[index].readsFiles = true
        }
        known[index].readDirectory = directory
    }

    /// The order in which programs use the directory's entries.
    func order(of place: Place) -> ReadAheadPlan.Order {
        index(of: place).flatMap { known[$0].listing?.plan.order } ?? .inodes
    }

    /// Takes the listing of a directory in which programs waited. Returns the entries to fetch
    /// first: none where the directory is not known any more, or another thread was faster.
    mutating func adopt(_ listing: Listing, of place: Place) -> [ReadAheadPlan.Entry] {
        guard let index = index(of: place), known[index].listing == nil else { return [] }
        var listing = listing
        for inode in known[index].used { listing.plan.note(inode) }
        let first = listing.plan.take()
        known[index].listing = listing
        shrink(keeping: place)
        return first
    }

    /// Takes the listing of a directory that programs will probably come to. Returns the entries to
    /// fetch first: none where the directory is known.
    mutating func expect(
        _ listing: Listing, of place: Place, at time: UInt64
    ) -> [ReadAheadPlan.Entry] {
        guard !contains(place) else { return [] }
        var listing = listing
        let first = listing.plan.take()
        known.append(Known(place: place, listing: listing, lastUse: time, used: []))
        shrink(keeping: place)
        return first
    }

    /// Ends fetching in a directory: its entries were in memory already.
    mutating func stop(_ place: Place) {
        if let index = index(of: place) { known[index].listing?.plan.stop() }
    }

    // MARK: Forgetting

    mutating func forget(_ place: Place) { drop { $0.place == place } }

    mutating func forgetAll() {
        drop { _ in true }
        waited = []
    }

    mutating func takeDropped() -> [Known] {
        if dropped.isEmpty { return [] }
        defer { dropped = [] }
        return dropped
    }

    private mutating func drop(_ isMeant: (Known) -> Bool) {
        guard known.contains(where: isMeant) else { return }
        dropped += known.filter(isMeant)
        known.removeAll(where: isMeant)
    }

    /// Drops the directories with the oldest uses until the rest is within the limits.
    private mutating func shrink(keeping place: Place) {
        while known.count > TreeReadAhead.mostPlans
            || known.reduce(0, { $0 + ($1.listing?.plan.entries.count ?? 0) })
                > TreeReadAhead.mostEntries,
            let oldest = known.indices.filter({ known[$0].place != place })
                .min(by: { known[$0].lastUse < known[$1].lastUse })
        {
            dropped.append(known.remove(at: oldest))
        }
    }
}
