/// Which parts of a long directory are read before its listing comes to them (decision 0070).
///
/// ext4 lists a directory in the order of the hashes of its names, which are the offsets, 63 bits
/// (fs/ext4/dir.c, `hash2pos`). What comes next lies anywhere in the directory, so that nothing is
/// read ahead and each block is waited for. Parts of the range of hashes are about equal parts of
/// the directory, and can be read at the same time.
struct ListingAhead {
    /// The first names come within this time, nanoseconds, where their blocks are in memory. They
    /// are in eight blocks or more.
    static let coldNanoseconds: UInt64 = 250_000
    /// Of the directory, in each part.
    static let partBytes = 1 << 20
    /// Shorter ones are read soon enough.
    static let leastBytes = 512 << 10
    /// Parts that are read, or being read, behind the one that the listing has come to.
    static let distance: UInt64 = 4
    private static let offsets: UInt64 = 1 << 63

    private let count: UInt64
    private var next: UInt64 = 1

    /// `bytes`: what the directory itself takes. Nil where it is short.
    init?(bytes: Int) {
        guard bytes >= ListingAhead.leastBytes else { return nil }
        count = UInt64(max(4, bytes / ListingAhead.partBytes))
    }

    private func start(of part: UInt64) -> UInt64 {
        part == count ? ListingAhead.offsets : ListingAhead.offsets / count * part
    }

    /// The listing has come to `offset`: takes the parts to read now.
    mutating func reach(_ offset: UInt64) -> [Range<UInt64>] {
        let part = min(offset / (ListingAhead.offsets / count), count - 1)
        let end = min(part + 1 + ListingAhead.distance, count)
        // What the listing has passed needs nobody.
        let first = max(next, part + 1)
        guard first < end else { return [] }
        next = end
        return (first..<end).map { start(of: $0)..<start(of: $0 + 1) }
    }
}
