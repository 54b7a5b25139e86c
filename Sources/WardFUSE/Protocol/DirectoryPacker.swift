import CWardLinux
import WardVolume

/// Packs directory entries into a reply: a `fuse_dirent` or `fuse_direntplus` with the name behind
/// it, each padded to a multiple of eight bytes.
struct DirectoryPacker: DirectorySink {
    private let buffer: UnsafeMutableRawBufferPointer
    private let policy: CachePolicy
    /// READDIRPLUS: the result of a look-up precedes each entry.
    private let withEntries: Bool
    private(set) var count = 0

    init(_ buffer: UnsafeMutableRawBufferPointer, withEntries: Bool, _ policy: CachePolicy) {
        self.buffer = buffer
        self.withEntries = withEntries
        self.policy = policy
    }

    mutating func add(
        name: UnsafeRawBufferPointer, inode: UInt64, type: UInt32, nextOffset: UInt64, entry: Entry?
    ) -> Bool {
        let headBytes =
            withEntries ? MemoryLayout<fuse_direntplus>.size : MemoryLayout<fuse_dirent>.size
        let usedBytes = headBytes &+ name.count
        let paddedBytes = (usedBytes &+ 7) & ~7
        guard let base = buffer.baseAddress, buffer.count &- count >= paddedBytes else {
            return false
        }
        let start = base + count
        let dirent = fuse_dirent(
            ino: inode, off: nextOffset, namelen: UInt32(truncatingIfNeeded: name.count), type: type
        )
        if withEntries {
            // Node ID 0: the entry is listed, not looked up.
            let entryOut = entry.map { fuse_entry_out($0, policy) } ?? fuse_entry_out()
            start.storeBytes(
                of: fuse_direntplus(entry_out: entryOut, dirent: dirent), as: fuse_direntplus.self)
        } else {
            start.storeBytes(of: dirent, as: fuse_dirent.self)
        }
        let tail = UnsafeMutableRawBufferPointer(
            start: start + headBytes, count: paddedBytes &- headBytes)
        tail.copyMemory(from: name)
        for index in name.count..<tail.count { tail[index] = 0 }
        count = count &+ paddedBytes
        return true
    }
}
