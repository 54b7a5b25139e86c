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
        guard durability.doubt.isOpen, !file.isBeyondDoubt else { return now }
        return durability.doubt.intervals.last?.upperBound ?? now
    }

    func noteChange(_ file: OpenFile, sizeChanged: Bool) {
        file.lastChange = storage.coarseNanoseconds()
        file.timesWereShown = false
        file.isUnsynced = true
        if sizeChanged {
            file.mayPunch = false
            file.hasHint = false
            file.needsHint = true
        }
        durability.dirt.noteChange()
    }

    /// Cuts off the size hint, or other bytes behind the last page, before the size changes.
    func removeHint(_ file: OpenFile) throws(Errno) {
        try syncEnd(file)
        let pages = max(layout.pageCount(forSize: file.sizeBytes), file.header == nil ? 0 : 1)
        try storage.ftruncate(file.descriptor, pages * layout.pageBytes)
        if file.hasUncutPages { file.mayHaveUncommittedCut = true }
        file.hasUncutPages = false
        file.hasHint = false
        file.needsHint = true
    }

    private func syncEnd(_ file: OpenFile) throws(Errno) {
        guard file.isEndUnsynced else { return }
        try syncData(file)
        file.isEndUnsynced = false
    }

    /// Puts the size hint back, so that a `stat` of the closed file reads nothing. That changes the
    /// file's times; they are restored if a program could notice.
    func putHint(_ file: OpenFile) {
        guard file.needsHint, file.isWritable, !file.needsMending, !file.node.isSuperseded else {
            return
        }
        file.needsHint = false
        let size = layout.backingSize(forSize: file.sizeBytes)
        if size == 0, !file.hasHint { return }
        let age = storage.coarseNanoseconds() &- file.lastChange
        do throws(Errno) {
            let status =
                file.timesWereShown || age > 8_000_000 ? try storage.fstat(file.descriptor) : nil
            if size > 0 {
                // Cut whole pages behind the last one first. Half a page could reach the disk
                // before the new size does.
                if file.hasHint { try removeHint(file) }
                file.needsHint = false
                try storage.ftruncate(file.descriptor, size)
            } else {
                try removeHint(file)
                file.needsHint = false
            }
            if let status {
                try storage.setTimes(
                    file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                    modification: status.st_mtim)
            }
            file.hasHint = size > 0
        } catch {
            // A missing hint costs one page read at the next `stat`. The bytes behind the last page
            // are unknown now.
            file.hasHint = true
        }
    }
}
