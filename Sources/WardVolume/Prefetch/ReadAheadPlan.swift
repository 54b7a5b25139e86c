/// Decides which entries of one directory to fetch before programs ask for them (decision 0070).
///
/// A value: it is told which entries were used and says which to fetch. It fetches those behind the
/// last used entry, in one of two orders. The order of inodes is their order on the disk; most
/// trees were made, and are read by name, in it. The order of the listing takes its place once a
/// program uses entries so, as `find`, `grep -r` and `rm -r` do. In a small directory any order
/// will do: all of it is soon fetched.
struct ReadAheadPlan {
    struct Entry: Equatable {
        var inode: UInt64
        /// The stored name, zero-terminated.
        var name: [CChar]
    }

    struct Limits {
        /// How many entries may be fetched and unused, at first and at most. The limit grows by two
        /// with each use: a program that wants a few of many must not cause all to be read.
        var first: Int
        var most: Int
        /// Fewer entries than this are not worth a call.
        var least: Int

        static let files = Limits(first: 16, most: 64, least: 8)
        static let directories = Limits(first: 4, most: 16, least: 1)
    }

    /// The order in which programs use entries.
    enum Order { case inodes, listing }

    private enum Mark { case untouched, fetched, used }

    private let limits: Limits
    private(set) var order: Order
    /// Sorted by inode, each inode once.
    let entries: [Entry]
    /// The entries' indices in the order of the listing, and the place of each entry in it.
    private let listed: [Int32]
    private let ranks: [Int32]
    /// The index of the last used entry.
    private var last: Int?
    private var marks: [Mark]
    private var left: Int
    /// Entries that are fetched and not used yet.
    private(set) var outstanding = 0
    private var uses = 0
    /// Where to look for the next entry, counted in `order`.
    private var position = 0
    /// Fetched entries were in memory already.
    private var isStopped = false

    /// `entries`: in the order of the listing. `order`: the expected order of use.
    init(_ entries: [Entry], _ limits: Limits, _ order: Order = .inodes) {
        self.limits = limits
        self.order = order
        let sorted = entries.indices.sorted { entries[$0].inode < entries[$1].inode }
        // A file with several names in the directory is taken once.
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

    /// Notes the use of an inode, and takes the entries to fetch now. An inode that is newer than
    /// the listing is ignored.
    mutating func use(_ inode: UInt64) -> [Entry] { note(inode) ? take() : [] }

    /// Notes the use of an inode; false where the directory had no such inode.
    @discardableResult
    mutating func note(_ inode: UInt64) -> Bool {
        guard let index = index(of: inode) else { return false }
        uses += 1
        follow(to: index)
        switch marks[index] {
        case .untouched:
            left -= 1
            // The program is elsewhere than expected.
            position = place(of: index, in: order) + 1
        case .fetched: outstanding -= 1
        case .used: break
        }
        marks[index] = .used
        return true
    }

    /// Changes to the other order where this use was the next one in it.
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

    /// Takes the entries to fetch now.
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
