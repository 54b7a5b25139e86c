extension VolumeStateRecord {
    /// How far the epochs of a copy's pages may lie above the epoch that its state record names: an
    /// epoch lasts minutes, or from one lock to the next, and a copy that is made meanwhile may
    /// take days.
    public static let copyStep: UInt32 = 1 << 22
    /// Where no record says which epoch it was: beyond what any volume gets to.
    public static let unknownEpoch: UInt32 = 1 << 30

    /// The record of a copy that was made while the volume was in use: clean, with every epoch that
    /// any page in it can carry in doubt, from the first on, and none of them to be used again.
    ///
    /// From the first on, because a file that became shorter while it was copied leaves a copy that
    /// ends in an old page, with nothing in it of the time of the copying. Above the record's
    /// epoch, because the record may be the first thing that was copied. Every time it takes less
    /// than half of the epochs that are left.
    public func ofCopyInUse() -> VolumeStateRecord {
        let step = min(VolumeStateRecord.copyStep, (UInt32.max - epoch) / 2)
        let last = epoch + step
        return VolumeStateRecord(isInUse: false, epoch: last, doubtful: [0...last])
    }

    /// The same for a copy without a record that can be read.
    public static let ofUnknownCopy = VolumeStateRecord(
        isInUse: true, epoch: unknownEpoch, doubtful: []
    ).ofCopyInUse()
}
