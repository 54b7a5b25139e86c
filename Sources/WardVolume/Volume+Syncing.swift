import Glibc
import WardFormat
import WardSystem

// Syncs that can be believed (decision 0054). One that fails has dropped the pages it could not
// write: they are read as they were written for as long as memory lasts, and the next sync, which
// has nothing to do with them, succeeds.
extension Volume {
    /// fdatasync(2) of a file that relies on it. The file's lock is held for writing.
    func syncData(_ file: OpenFile) throws(Errno) {
        // Of a failure that is being noted the file's count comes last: it is looked at first.
        let fileFailures = file.syncFailures
        let failures = syncFailures.load(ordering: .acquiring)
        if file.mendedSyncFailures != failures { try writeEndsAgain(file) }
        try sync(file, dataOnly: true)
        // Told to another one who shares the descriptor.
        guard file.syncFailures == fileFailures else { throw file.lastSyncFailure }
        file.mendedSyncFailures = failures
        file.forgetEarlierHeaders(hasNewKey: false)
        file.hasUnsyncedKey = false
        unsyncedKeys.forget(file.node.inode)
    }

    /// A failure is noted: every handle reports it once. Without one there may have been another's
    /// meanwhile: `file.syncFailures` tells.
    func sync(_ file: OpenFile, dataOnly: Bool) throws(Errno) {
        removedFiles.noteSync()
        try file.syncs.sync(isFull: !dataOnly) { isFull throws(Errno) in
            do throws(Errno) {
                if isFull {
                    try storage.fsync(file.descriptor)
                } else {
                    try storage.fdatasync(file.descriptor)
                }
                // What it could not see: told to who began to write, and noted before this returns.
                streaming.settle(file)
            } catch {
                noteFailedSync(of: file, error)
                throw error
            }
        }
    }

    /// Whether a sync has failed since a sync of this file could be believed.
    func mayHaveLostPages(_ file: OpenFile) -> Bool {
        file.mendedSyncFailures != syncFailures.load(ordering: .acquiring)
    }

    /// What the file may look like now is excused, until it was read from the disk and mended, and
    /// each handle is told once.
    func noteFailedSync(of file: OpenFile, _ error: Errno) {
        syncFailures.add(1, ordering: .acquiringAndReleasing)
        noteHalfDone(file, "a sync failed")
        file.noteSyncFailure(error)
    }

    /// Of the whole store, of whatever file: no epoch is known to be durable from now on, in this
    /// mount. What it dropped shows when memory does not have it any more, in every file: excused
    /// until the pass was there, as after a power cut.
    func noteFailedStoreSync() {
        syncFailures.add(1, ordering: .acquiringAndReleasing)
        lastDurablePointFailed.store(true, ordering: .relaxed)
        doubt(through: recordedEpoch &+ 1)
    }

    /// The first page and the last, as they are read now: what a file is, and where it ends, is
    /// what they say. `EIO` where one of them is not what was written any more. The file's lock is
    /// held for writing.
    func writeEndsAgain(_ file: OpenFile) throws(Errno) {
        guard file.isWritable, file.header != nil else { return }
        settle(file)
        let last = layout.pageCount(forSize: file.sizeBytes) - 1
        try withTemporaryPage { page throws(Errno) in
            if last > 0 {
                try readEnd(file, last, to: page)
                try storage.pwrite(
                    file.descriptor, page, layout.pageBytes, at: last * layout.pageBytes)
                try readPage(file, 0, to: page)
            } else if last == 0 {
                try readEnd(file, 0, to: page)
            }
            // Another key's record under this header would be nobody's any more. An empty file has
            // no key, and no record.
            guard last < 0 || file.hasOwnRecord(page) else { throw .ioError }
            page.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            try storage.pwrite(file.descriptor, page, layout.pageBytes, at: 0)
        }
    }

    private func readEnd(
        _ file: OpenFile, _ last: Int, to page: UnsafeMutableRawPointer
    ) throws(Errno) {
        try readPage(file, last, to: page)
        let prefix = RecordPrefix(reading: page + layout.recordOffset(ofPage: last))
        let length = file.sizeBytes - layout.start(ofPage: last)
        // What a power cut left of an end that nobody looked at yet, without FINAL, is what the
        // file was opened with.
        guard
            file.needsMending
                || Int(prefix.length) == length && (prefix.isFinal || !file.isEndVerified)
        else { throw .ioError }
    }
}
