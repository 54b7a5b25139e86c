/// The promises of a simulated disk.
package struct DiskKind: Sendable, Equatable {
    /// The order in which changes of names, sizes and attributes reach the disk.
    package enum Order: String, Sendable, CaseIterable {
        /// ext4's journal (`data=ordered`, delayed allocation). Changes reach the disk in the order
        /// in which they were made; a power cut keeps the first of them. A call of fsync(2) commits
        /// the journal up to the inode's last change, fdatasync(2) up to the last change of its
        /// size or blocks.
        case journal
        /// The promises of POSIX alone. An entry is durable after fsync(2) of its directory, an
        /// inode's size and attributes after fsync(2) of the inode. Any part of unsynced changes
        /// may survive. A single call is atomic. Moves of directories keep their order, or the tree
        /// could break.
        case posix
    }

    package var order: Order
    /// The unit that is written whole or not at all: 512 or 4,096 bytes.
    package var atomicBytes: Int

    package init(order: Order, atomicBytes: Int) {
        precondition(atomicBytes == 512 || atomicBytes == 4096)
        self.order = order
        self.atomicBytes = atomicBytes
    }
}

/// The unflushed changes that survive a power cut.
package enum Survival: Int, Sendable, CaseIterable {
    /// All changes, as when a daemon was killed or the disk was quick.
    case everything
    /// No changes.
    case onlyFlushed
    /// Names, sizes and attributes, but no data.
    case namesWithoutData
    /// Data in blocks that the disk knew already, but no names, sizes or attributes.
    case dataWithoutNames
    /// Each file's data as a whole or not at all, and some of the names.
    case wholeFiles
    /// Each atomic unit by chance, and some of the names. Chosen most often.
    case units
}
