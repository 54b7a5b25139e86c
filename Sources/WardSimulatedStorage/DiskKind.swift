/// What a simulated disk promises.
package struct DiskKind: Sendable, Equatable {
    /// In what order changes of names, sizes and attributes reach the disk.
    package enum Order: String, Sendable, CaseIterable {
        /// As ext4's journal (`data=ordered`, delayed allocation): they reach it in the order in
        /// which they were made, and a power cut keeps a beginning of them. fsync(2) of a file or
        /// directory commits the journal up to the last change of that inode; fdatasync(2) up to
        /// the last one of its size or blocks.
        case journal
        /// What POSIX alone promises: an entry is durable after fsync(2) of its directory, and an
        /// inode's size and attributes after fsync(2) of it; of what was not synced any part may
        /// survive. A single call is atomic, and moves of directories keep their order (else the
        /// tree would not be one).
        case posix
    }

    package var order: Order
    /// What is written whole or not at all: 512 or 4,096 bytes.
    package var atomicBytes: Int

    package init(order: Order, atomicBytes: Int) {
        precondition(atomicBytes == 512 || atomicBytes == 4096)
        self.order = order
        self.atomicBytes = atomicBytes
    }
}

/// What a power cut leaves of what was not flushed.
package enum Survival: Int, Sendable, CaseIterable {
    /// All of it: a daemon that was killed, or a disk that was quick.
    case everything
    /// Nothing.
    case onlyFlushed
    /// Names, sizes and attributes, but no data.
    case namesWithoutData
    /// Data in blocks that the disk knew already, but no names, sizes or attributes.
    case dataWithoutNames
    /// Each file's data altogether or not at all, some of the names.
    case wholeFiles
    /// Each atomic unit by chance, some of the names. Chosen most often.
    case units
}
