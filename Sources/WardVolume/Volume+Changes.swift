import CWardLinux
import Glibc
import WardSystem

// What is noted of a change: its epoch, its time, and the size hint that has to follow.
extension Volume {
    /// Announces the epoch that the pages of this request will carry; a durable point waits for `endWrite`.
    func beginWrite(_ context: WorkerContext) -> UInt32 {
        while true {
            let now = epoch.load(ordering: .sequentiallyConsistent)
            context.epochInUse.store(now, ordering: .sequentiallyConsistent)
            if epoch.load(ordering: .sequentiallyConsistent) == now { return now }
        }
    }

    @inline(__always)
    func endWrite(_ context: WorkerContext) { context.epochInUse.store(0, ordering: .releasing) }

    func noteChange(_ file: OpenFile, sizeChanged: Bool) {
        file.lastChange = SystemClock.coarseNanoseconds()
        file.timesWereShown = false
        file.isUnsynced = true
        if sizeChanged {
            file.hasHint = false
            file.needsHint = true
        }
        isDirty.store(true, ordering: .relaxed)
    }

    /// Takes the size hint, or what else is behind the last page, off before the size changes.
    func removeHint(_ file: OpenFile) throws(Errno) {
        let pages = max(layout.pageCount(forSize: file.sizeBytes), file.header == nil ? 0 : 1)
        try storage.ftruncate(file.descriptor, pages * layout.pageBytes)
        file.hasHint = false
        file.needsHint = true
    }

    /// Puts the size hint back, so that a `stat` of the closed file reads nothing. Its own change of the file's times
    /// is taken back where somebody could notice.
    func putHint(_ file: OpenFile) {
        guard file.needsHint, file.isWritable, !file.needsMending else { return }
        file.needsHint = false
        let size = layout.backingSize(forSize: file.sizeBytes)
        guard size > 0 else {
            if file.hasHint { try? removeHint(file) }
            file.needsHint = false
            return
        }
        let age = SystemClock.coarseNanoseconds() &- file.lastChange
        do throws(Errno) {
            if file.timesWereShown || age > 8_000_000 {
                let status = try storage.fstat(file.descriptor)
                try storage.ftruncate(file.descriptor, size)
                try storage.setTimes(
                    file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                    modification: status.st_mtim)
            } else {
                try storage.ftruncate(file.descriptor, size)
            }
            file.hasHint = true
        } catch {
            // A missing hint costs a page read at the next `stat`, nothing more.
            file.hasHint = false
        }
    }
}
