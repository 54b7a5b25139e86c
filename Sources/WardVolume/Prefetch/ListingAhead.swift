/// Chooses the parts of a long directory that are read ahead of its listing (decision 0070).
///
/// ext4 lists a directory in the order of the hashes of its names. The offsets are these hashes, 63
/// bits (fs/ext4/dir.c, `hash2pos`). The blocks of the next names lie anywhere in the directory:
/// the kernel reads nothing ahead, and the listing waits for each block. Equal parts of the range
/// of hashes are about equal parts of the directory. They can be read at the same time.
struct ListingAhead {
    /// If the first names took longer, nanoseconds, their blocks were not in memory. The names are
    /// in eight blocks or more.
    static let coldNanoseconds: UInt64 = 250_000
    /// Bytes of the directory in each part.
    static let partBytes = 1 << 20
    /// Shorter directories are read soon enough.
    static let leastBytes = 512 << 10
    /// Parts that are read ahead of the part that the listing has reached.
    static let distance: UInt64 = 4
    private static let offsets: UInt64 = 1 << 63

    private let count: UInt64
    private var next: UInt64 = 1

    /// `bytes`: the size of the directory itself. Nil where it is short.
    init?(bytes: Int) {
        guard bytes >= ListingAhead.leastBytes else { return nil }
        count = UInt64(max(4, bytes / ListingAhead.partBytes))
    }

    private func start(of part: UInt64) -> UInt64 {
        part == count ? ListingAhead.offsets : ListingAhead.offsets / count * part
    }

    /// Notes that the listing has reached `offset`. Returns the parts to read now.
    mutating func reach(_ offset: UInt64) -> [Range<UInt64>] {
        let part = min(offset / (ListingAhead.offsets / count), count - 1)
        let end = min(part + 1 + ListingAhead.distance, count)
        // Parts that the listing has passed are of no use.
        let first = max(next, part + 1)
        guard first < end else { return [] }
        next = end
        return (first..<end).map { start(of: $0)..<start(of: $0 + 1) }
    }
}
