/// What of one directory is fetched before it is asked for, and when (decision 0070).
///
/// A value: it is told what was used and says what to fetch. Entries are fetched in the order of their inodes, beginning
/// behind the one that was used: there they lie on the disk, and most trees were made in the order in which they are read.
/// In a small directory any order will do: all of it is fetched soon.
struct ReadAheadPlan {
    struct Entry: Equatable {
        var inode: UInt64
        /// As stored, zero-terminated.
        var name: [CChar]
    }

    struct Limits {
        /// Fetched and not used yet: at first, and at most. In between it grows by two with each use, so that who wants a few
        /// of many does not have all of them read.
        var first: Int
        var most: Int
        /// Fewer than this are not worth the call.
        var least: Int

        static let files = Limits(first: 16, most: 64, least: 8)
        static let directories = Limits(first: 4, most: 16, least: 1)
    }

    private enum Mark { case untouched, fetched, used }

    private let limits: Limits
    /// In the order of inodes, each once.
    let entries: [Entry]
    private var marks: [Mark]
    private var left: Int
    /// Fetched and not used yet.
    private(set) var outstanding = 0
    private var uses = 0
    /// Where to look for what comes next.
    private var position = 0
    /// What was fetched proved to be in memory already.
    private var isStopped = false

    init(_ entries: [Entry], _ limits: Limits) {
        self.limits = limits
        // Of a file with several names in the directory, one.
        self.entries = entries.sorted { $0.inode < $1.inode }.reduce(into: []) { distinct, entry in
            if distinct.last?.inode != entry.inode { distinct.append(entry) }
        }
        marks = Array(repeating: .untouched, count: self.entries.count)
        left = self.entries.count
    }

    /// Notes that an inode of the directory is being used, and takes what to fetch now. What the directory got since it was
    /// listed is nobody's.
    mutating func use(_ inode: UInt64) -> [Entry] {
        guard let index = index(of: inode) else { return [] }
        uses += 1
        switch marks[index] {
        case .untouched:
            left -= 1
            // Not what was expected: whoever asks is elsewhere.
            position = index + 1
        case .fetched: outstanding -= 1
        case .used: break
        }
        marks[index] = .used
        return take()
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
            if marks[position] == .untouched {
                marks[position] = .fetched
                taken.append(entries[position])
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
