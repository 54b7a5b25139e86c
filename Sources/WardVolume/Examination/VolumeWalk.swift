import Synchronization
import WardSystem

/// A walk over all files of a volume: the state at its beginning, which is compared at its end. A
/// file that moved meanwhile may have been missed.
package struct VolumeWalk: Sendable {
    private let volume: Volume
    private let halfDoneChanges: Int
    private let moves: UInt64
    private let doubtful: [ClosedRange<UInt32>]

    /// Called before the walk lists anything.
    package init(_ volume: Volume) {
        self.volume = volume
        halfDoneChanges = volume.durability.doubt.halfDoneChanges
        moves = volume.names.movedNodes.count
        doubtful = volume.durability.doubt.intervals
    }

    /// Whether no file was moved since the beginning, and none is being moved.
    package var hasSeenAll: Bool {
        volume.names.changes.quietState != nil && volume.names.movedNodes.count == moves
    }

    /// Ends the doubts that were there at the beginning: every file was read and, where necessary,
    /// mended. If the walk may have missed files, the volume's own pass is due.
    package func endDoubt() {
        guard !doubtful.isEmpty else { return }
        if hasSeenAll {
            volume.endDoubt(of: doubtful, ifHalfDoneIs: halfDoneChanges)
        } else {
            volume.durability.doubt.noteMendingDue(true)
        }
    }
}

extension Volume {
    /// The epoch for pages that are written now.
    package var epoch: UInt32 { durability.epoch.load(ordering: .sequentiallyConsistent) }

    /// Advances past an epoch that pages carry although the state record is older, and makes a
    /// durable point. No lock is held.
    package func skipEpochs(through seen: UInt32) throws(Errno) {
        durability.skipEpochs(through: seen)
        try durablePoint()
    }

    /// Returns the fault of the open volume's state record, as it is on disk; nil if it has none.
    package func stateProblem() throws(VolumeOpenError) -> String? {
        try durability.stateProblem()
    }
}
