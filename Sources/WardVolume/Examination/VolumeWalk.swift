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
