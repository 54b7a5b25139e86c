import WardFormat
import WardSystem

// Large files that grow (decision 0069).
extension Volume {
    /// Streams a write that made the file longer to the disk, before it is acknowledged. If the
    /// backing store fails, this write and the next sync report the error.
    @inline(__always)
    func stream(
        _ access: borrowing FileWriteAccess, offset: Int, count: Int, oldSize: Int
    ) throws(Errno) {
        let file = access.file
        guard count >= Streaming.smallestRequestBytes, offset >= Streaming.beginBytes,
            file.sizeBytes > oldSize, mount.keepsContent, !file.notes.isKnownDatabase.value
        else { return }
        try tellStore(of: access, offset, count)
    }

    private func tellStore(
        of access: borrowing FileWriteAccess, _ offset: Int, _ count: Int
    ) throws(Errno) {
        let file = access.file
        // A lock waits for requests on files of these classes, and must not wait for a backing
        // store that hangs.
        guard ![.complete, .completeUnlessOpen].contains(file.protectionClass) else { return }
        let pageBytes = layout.pageBytes
        // Without the last page: the next request writes it again and would wait for the disk.
        let range =
            layout.page(at: offset) * pageBytes..<layout.page(at: offset + count - 1) * pageBytes
        let begin = storage.nanoseconds()
        guard store.streaming.isWelcome(at: begin) else { return }
        try store.streaming.telling(of: file) { growth throws(Errno) in
            do throws(Errno) {
                try storage.beginWriting(file.descriptor, range)
                guard let passed = growth.note(range) else { return }
                // A program may have overwritten these bytes since. To forget them would begin to
                // write them, and report no error.
                try storage.beginWriting(file.descriptor, passed)
                storage.forgetCached(file.descriptor, passed)
            } catch .noMemory, .wouldBlock {
                // The write was not begun, and no page is lost.
            } catch {
                noteFailedSync(of: file, error)
                throw error
            }
        }
        store.streaming.noteTime(begin, storage.nanoseconds())
    }
}
