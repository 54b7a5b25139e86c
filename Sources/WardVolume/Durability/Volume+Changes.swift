import CWardLinux
import Glibc
import WardSystem

// Notes of a change to a file: its epoch, its time, and the size hint that has to follow.
extension Volume {
    /// Returns the epoch to put into pages of `file`, for a request that announced `now`.
    ///
    /// In a file that may have findings, new pages keep the doubtful epoch. Otherwise a program
    /// that overwrites a doubtful page, or makes the file longer, would remove what excuses the
    /// neighbouring pages. Such pages are durable before the doubtful interval ends, because a sync
    /// comes before the state record without it.
    @inline(__always)
    func sealingEpoch(_ file: OpenFile, _ now: UInt32) -> UInt32 {
        guard durability.doubt.isOpen, !file.notes.isBeyondDoubt.value else { return now }
        return durability.doubt.intervals.last?.upperBound ?? now
    }

    func noteChange(_ file: OpenFile) {
        file.times.changed(at: storage.coarseNanoseconds())
        durability.dirt.noteChange()
    }

    /// Cuts off the size hint, or other bytes behind the last page, before the size changes.
    func removeHint(_ file: OpenFile) throws(Errno) {
        try syncEnd(file)
        let pages = max(layout.pageCount(forSize: file.sizeBytes), file.header == nil ? 0 : 1)
        try storage.ftruncate(file.descriptor, pages * layout.pageBytes)
        if file.extent.hasUncutPages { file.syncState.cutMade() }
        file.extent.hintRemoved()
    }

    private func syncEnd(_ file: OpenFile) throws(Errno) {
        guard file.extent.needsSyncBeforeCut else { return }
        try syncData(file)
        file.extent.endSynced()
    }

    /// Puts the size hint back, so that a `stat` of the closed file reads nothing. That changes the
    /// file's times; they are restored if a program could notice.
    func putHint(_ file: OpenFile) {
        guard file.extent.needsHint, file.isWritable, !file.extent.needsMending,
            !file.node.isSuperseded
        else { return }
        file.extent.hintTried()
        let size = layout.backingSize(forSize: file.sizeBytes)
        if size == 0, file.extent.tail == .none { return }
        let age = storage.coarseNanoseconds() &- file.times.lastChange
        do throws(Errno) {
            let status =
                file.times.wereShown || age > 8_000_000 ? try storage.fstat(file.descriptor) : nil
            if size > 0 {
                // Cut whole pages behind the last one first. Half a page could reach the disk
                // before the new size does.
                if file.extent.tail != .none { try removeHint(file) }
                file.extent.hintTried()
                try storage.ftruncate(file.descriptor, size)
            } else {
                try removeHint(file)
                file.extent.hintTried()
            }
            if let status {
                try storage.setTimes(
                    file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                    modification: status.st_mtim)
            }
            file.extent.hintPut()
        } catch {
            // A missing hint costs one page read at the next `stat`. The bytes behind the last page
            // are unknown now.
            file.extent.hintFailed()
        }
    }
}
