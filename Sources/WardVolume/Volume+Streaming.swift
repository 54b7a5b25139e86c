import Glibc
import WardFormat
import WardSystem

// Large files that grow (decision 0069).
extension Volume {
    /// A write was served, or failed; the file had `oldSize` bytes before, and has `newSize`.
    @inline(__always)
    func noteWritten(_ file: OpenFile, offset: Int, count: Int, oldSize: Int, newSize: Int) {
        guard count >= Streaming.smallestRequestBytes, newSize > oldSize, !file.isKnownDatabase,
            kernelKeepsContent
        else { return }
        let pageBytes = layout.pageBytes
        // The last page is written again by the next request, which would wait for the disk.
        noteGrowth(
            layout.page(at: offset) * pageBytes..<layout.page(at: offset + count - 1) * pageBytes,
            of: file)
    }

    private func noteGrowth(_ range: Range<Int>, of file: OpenFile) {
        guard range.lowerBound >= Streaming.beginBytes, !range.isEmpty,
            file.growth.withLock({ $0.note(range) })
        else { return }
        streaming.tell { [self] in
            guard let (written, passed) = file.growth.withLock({ $0.take() }) else { return }
            do throws(Errno) {
                try storage.beginWriting(file.descriptor, written)
                guard let passed else { return }
                // Forgetting what is still to be written would begin to write it, and tell nobody how that went.
                try storage.beginWriting(file.descriptor, passed)
                storage.forgetCached(file.descriptor, passed)
            } catch {
                noteFailedWriting(of: file, error)
            }
        }
    }

    /// Forgets what memory holds of a file in doubt, so that what is read next is what is on the disk.
    func forgetCached(_ file: OpenFile) {
        streaming.telling {
            do throws(Errno) {
                try storage.beginWriting(file.descriptor, 0..<Int.max)
            } catch {
                noteFailedWriting(of: file, error)
            }
            storage.forgetCached(file.descriptor)
        }
    }

    /// What the next sync would have been told.
    private func noteFailedWriting(of file: OpenFile, _ error: Errno) {
        noteFailedSync(of: file)
        file.noteSyncFailure(error)
        report(.lost(path: path(of: file.node), reason: "writing to the disk: \(error)"))
    }
}
