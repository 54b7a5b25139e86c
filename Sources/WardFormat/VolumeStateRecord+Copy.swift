extension VolumeStateRecord {
    /// How far the epochs of a copy's pages may lie above the epoch of its state record. An epoch
    /// lasts minutes, or from one lock to the next; making a copy may take days.
    public static let copyStep: UInt32 = 1 << 22
    /// The epoch that is taken where no record names one: larger than that of any volume.
    public static let unknownEpoch: UInt32 = 1 << 30

    /// The record of a copy that was made while the volume was in use. It is clean. Every epoch
    /// that a page of the copy can have is in doubt, and no later mount uses one of them.
    ///
    /// Doubt begins at epoch 0: a file that was truncated during the copy may end in an old page,
    /// without any page written since. It ends above the record's epoch, because the record may
    /// have been copied first. Each call takes at most half of the epochs that are left.
    public func ofCopyInUse() -> VolumeStateRecord {
        let step = min(VolumeStateRecord.copyStep, (UInt32.max - epoch) / 2)
        let last = epoch + step
        return VolumeStateRecord(
            format: format, isUpgrading: isUpgrading, isInUse: false, epoch: last,
            doubtful: [0...last])
    }

    /// The record of a copy in use whose own record can't be read.
    public static func ofUnknownCopy(_ standing: FormatStanding) -> VolumeStateRecord {
        VolumeStateRecord(
            format: standing.format, isUpgrading: standing.isUpgrading, isInUse: true,
            epoch: unknownEpoch, doubtful: []
        ).ofCopyInUse()
    }
}
