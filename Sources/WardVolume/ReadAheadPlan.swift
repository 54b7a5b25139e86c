/// What of one directory is fetched before it is asked for, and when (decision 0070).
///
/// A value: it is told what was used and says what to fetch. Entries are fetched beginning behind
/// the one that was used, in one of two orders: that of their inodes, in which they lie on the
/// disk, and in which most trees were made and are read by name; or that of the store's listing,
/// once somebody uses them so, as `find`, `grep -r` and `rm -r` do. In a small directory any order
/// will do: all of it is fetched soon.
struct ReadAheadPlan {
    struct Entry: Equatable {
        var inode: UInt64
        /// As stored, zero-terminated.
        var name: [CChar]
    }

    struct Limits {
        /// Fetched and not used yet: at first, and at most. In between it grows by two with each
        /// use, so that who wants a few of many does not have all of them read.
        var first: Int
        var most: Int
        /// Fewer than this are not worth the call.
        var least: Int

        static let files = Limits(first: 16, most: 64, least: 8)
        static let directories = Limits(first: 4, most: 16, least: 1)
    }

    /// In which entries are used, one after the other.
    enum Order { case inodes, listing }

    private enum Mark { case untouched, fetched, used }

    private let limits: Limits
    private(set) var order: Order
    /// In the order of inodes, each once.
    let entries: [Entry]
    /// Indices of the entries in the order of the listing, and where in that each one is.
    private let listed: [Int32]
    private let ranks: [Int32]
    /// The index that was used last.
    private var last: Int?
    private var marks: [Mark]
    private var left: Int
    /// Fetched and not used yet.
    private(set) var outstanding = 0
    private var uses = 0
    /// Where to look for what comes next, counted in `order`.
    private var position = 0
    /// What was fetched proved to be in memory already.
    private var isStopped = false

    /// `entries`: as the store lists them. `order`: what to expect before anything was used.
    init(_ entries: [Entry], _ limits: Limits, _ order: Order = .inodes) {
        self.limits = limits
        self.order = order
        let sorted = entries.indices.sorted { entries[$0].inode < entries[$1].inode }
        // Of a file with several names in the directory, one.
        let places = sorted.reduce(into: [Int]()) { distinct, place in
            if distinct.last.map({ entries[$0].inode }) != entries[place].inode {
                distinct.append(place)
            }
        }
        self.entries = places.map { entries[$0] }
        listed = places.indices.sorted { places[$0] < places[$1] }.map(Int32.init)
        var ranks = [Int32](repeating: 0, count: places.count)
        for (rank, index) in listed.enumerated() { ranks[Int(index)] = Int32(rank) }
        self.ranks = ranks
        marks = Array(repeating: .untouched, count: places.count)
        left = places.count
    }

    /// Notes that an inode of the directory is being used, and takes what to fetch now. What the
    /// directory got since it was listed is nobody's.
    mutating func use(_ inode: UInt64) -> [Entry] { note(inode) ? take() : [] }

    /// Notes that an inode of the directory was used; false where there is none.
    @discardableResult
    mutating func note(_ inode: UInt64) -> Bool {
        guard let index = index(of: inode) else { return false }
        uses += 1
        follow(to: index)
        switch marks[index] {
        case .untouched:
            left -= 1
            // Not what was expected: whoever asks is elsewhere.
            position = place(of: index, in: order) + 1
        case .fetched: outstanding -= 1
        case .used: break
        }
        marks[index] = .used
        return true
    }

    /// Who uses what comes next in the other order goes on in that.
    private mutating func follow(to index: Int) {
        defer { last = index }
        guard let last, !isNext(index, after: last, in: order) else { return }
        let other: Order = order == .inodes ? .listing : .inodes
        guard isNext(index, after: last, in: other) else { return }
        order = other
        position = place(of: index, in: other) + 1
    }

    private func isNext(_ index: Int, after last: Int, in order: Order) -> Bool {
        place(of: index, in: order) == place(of: last, in: order) + 1
    }

    private func place(of index: Int, in order: Order) -> Int {
        order == .inodes ? index : Int(ranks[index])
    }

    /// Takes what to fetch before anything of the directory was used.
    mutating func take() -> [Entry] {
        let limit = min(limits.most, limits.first + 2 * uses)
        let wanted = min(limit - outstanding, left)
        guard !isStopped, wanted > 0, wanted >= limits.least || wanted == left else { return [] }
        var taken: [Entry] = []
        taken.reserveCapacity(wanted)
        while taken.count < wanted {
            if position >= marks.count { position = 0 }
            let index = order == .inodes ? position : Int(listed[position])
            if marks[index] == .untouched {
                marks[index] = .fetched
                taken.append(entries[index])
            }
            position += 1
        }
        left -= wanted
        outstanding += wanted
        return taken
    }

    mutating func stop() { isStopped = true }

    private func index(of inode: UInt64) -> Int? {
        var low = 0
        var high = entries.count
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].inode < inode { low = middle + 1 } else { high = middle }
        }
        return low < entries.count && entries[low].inode == inode ? low : nil
    }
}
