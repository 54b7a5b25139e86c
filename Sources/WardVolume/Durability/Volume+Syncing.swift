import Glibc
import WardFormat
import WardSystem

// Reliable syncs (decision 0054). A failed sync drops the pages that it could not write. Memory
// still shows them as written for a while, and the next sync, which no longer covers them,
// succeeds.
extension Volume {
    /// Syncs a file's data, fdatasync(2), and throws if pages may be lost. The caller holds the
    /// file's lock for writing.
    func syncData(_ file: OpenFile) throws(Errno) {
        // A failure increases the file's count last, so that count is read first.
        let fileFailures = file.syncs.failures
        let failures = durability.syncFailures
        if file.syncs.mendedFailures.value != failures { try writeEndsAgain(file) }
        try sync(file, dataOnly: true)
        // The kernel told the failure to another thread that shares the descriptor.
        guard file.syncs.failures == fileFailures else { throw file.syncs.lastFailure }
        file.syncs.mendedFailures.value = failures
        file.headers.synced()
        file.syncState.synced()
        durability.unsynced.keys.forget(file.node.inode)
    }

    /// Syncs a file. Notes a failure, so that each handle reports it once. If this does not throw,
    /// another thread's sync may still have failed meanwhile: see `FileSyncs.failures`.
    func sync(_ file: OpenFile, dataOnly: Bool) throws(Errno) {
        store.removedFiles.noteSync()
        try file.syncs.group.sync(isFull: !dataOnly) { isFull throws(Errno) in
            do throws(Errno) {
                if isFull {
                    try storage.fsync(file.descriptor)
                } else {
                    try storage.fdatasync(file.descriptor)
                }
                // The sync does not see the failure of a streamed write. Wait until the streaming
                // thread has noted it.
                store.streaming.settle(file)
            } catch {
                noteFailedSync(of: file, error)
                throw error
            }
        }
    }

    /// Whether a sync has failed since the last reliable sync of this file.
    func mayHaveLostPages(_ file: OpenFile) -> Bool {
        file.syncs.mendedFailures.value != durability.syncFailures
    }

    /// Notes a failed sync of a file. The file is in doubt until it was read from the disk and
    /// mended. Each handle reports the failure once.
    func noteFailedSync(of file: OpenFile, _ error: Errno) {
        durability.noteSyncFailure()
        noteHalfDone(file, "a sync failed")
        file.syncs.noteFailure(error)
    }

    /// Writes the first and the last page again, as they are read now: they define what the file is
    /// and where it ends. Throws `EIO` if one of them is not as this file wrote it. The caller
    /// holds the file's lock for writing.
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
            // This header on the record of another key would make that record unreadable. An empty
            // file has no key and no record.
            guard last < 0 || file.headers.isOwnRecord(page) else { throw .ioError }
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
        // An end without FINAL that a power cut left, and no open has verified, is what the file
        // was opened with.
        guard
            file.extent.needsMending
                || Int(prefix.length) == length && (prefix.isFinal || !file.extent.isEndVerified)
        else { throw .ioError }
    }
}
