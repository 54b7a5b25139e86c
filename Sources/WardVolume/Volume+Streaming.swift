import WardFormat
import WardSystem

// Large files that grow (decision 0069).
extension Volume {
    /// After a write that made the file longer, before it is acknowledged: what the store could not
    /// take of it is this write's error, and the next sync's. The file's lock is held for writing.
    @inline(__always)
    func stream(
        _ file: OpenFile, offset: Int, count: Int, oldSize: Int
    ) throws(Errno) {
        guard count >= Streaming.smallestRequestBytes, offset >= Streaming.beginBytes,
            file.sizeBytes > oldSize, kernelKeepsContent, !file.isKnownDatabase
        else { return }
        try tellStore(of: file, offset, count)
    }

    private func tellStore(of file: OpenFile, _ offset: Int, _ count: Int) throws(Errno) {
        // A lock waits for requests on the files that it closes, and must not wait for a store that
        // hangs.
        guard ![.complete, .completeUnlessOpen].contains(file.protectionClass) else { return }
        let pageBytes = layout.pageBytes
        // The last page is written again by the next request, which would wait for the disk.
        let range =
            layout.page(at: offset) * pageBytes..<layout.page(at: offset + count - 1) * pageBytes
        let begin = storage.nanoseconds()
        guard streaming.isWelcome(at: begin) else { return }
        try streaming.telling(of: file) { () throws(Errno) in
            do throws(Errno) {
                try storage.beginWriting(file.descriptor, range)
                guard let passed = file.growth.note(range) else { return }
                // What a program has written over since: forgetting it would begin to write it, and
                // tell nobody how that went.
                try storage.beginWriting(file.descriptor, passed)
                storage.forgetCached(file.descriptor, passed)
            } catch .noMemory, .wouldBlock {
                // Not begun, and not lost.
            } catch {
                noteFailedSync(of: file, error)
                throw error
            }
        }
        streaming.noteTime(begin, storage.nanoseconds())
    }
}
