import CWardLinux
import Glibc
import WardSystem

// What is noted of a change: its epoch, its time, and the size hint that has to follow.
extension Volume {
    /// Announces the epoch that the pages of this request will carry; a durable point waits for
    /// `endWrite`.
    func beginWrite(_ context: WorkerContext) -> UInt32 {
        while true {
            let now = epoch.load(ordering: .sequentiallyConsistent)
            context.epochInUse.store(now, ordering: .sequentiallyConsistent)
            if epoch.load(ordering: .sequentiallyConsistent) == now { return now }
        }
    }

    /// The epoch that pages of `file` say, of a request that announced `now`. A file that may have
    /// findings keeps bearing witness for them: who writes over a page of a doubtful epoch, or
    /// makes the file longer, would otherwise take away what excuses its neighbours. What is
    /// written so is durable before the interval ends: the record without it follows a sync of all
    /// that began before.
    @inline(__always)
    func sealingEpoch(_ file: OpenFile, _ now: UInt32) -> UInt32 {
        guard hasDoubt.load(ordering: .acquiring), !file.isBeyondDoubt else { return now }
        return doubtful.last?.upperBound ?? now
    }

    @inline(__always)
    func endWrite(_ context: WorkerContext) { context.epochInUse.store(0, ordering: .releasing) }

    func noteChange(_ file: OpenFile, sizeChanged: Bool) {
        file.lastChange = storage.coarseNanoseconds()
        file.timesWereShown = false
        file.isUnsynced = true
        if sizeChanged {
            file.mayPunch = false
            file.hasHint = false
            file.needsHint = true
        }
        isDirty.store(true, ordering: .relaxed)
    }

    /// Takes the size hint, or what else is behind the last page, off before the size changes.
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

    /// Puts the size hint back, so that a `stat` of the closed file reads nothing. Its own change
    /// of the file's times is taken back where somebody could notice.
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
                // Pages behind the last one go as a whole: half a page could be on the disk before
                // the new size is.
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
            // A missing hint costs a page read at the next `stat`, nothing more. What is behind the
            // last page is not known now.
            file.hasHint = true
        }
    }
}
