import Glibc
import Synchronization
import WardSystem

// Pages that are accepted while a class is closing and stored afterwards (decision 0012).
extension Volume {
    /// How long `close` waits for a backing store that does not answer.
    static let closePatience = Duration.seconds(30)

    /// Bytes of ciphertext that were accepted at a lock and are not in the backing store yet.
    public var pendingStoreBytes: Int { pending.bytes }

    /// Acknowledges whole sealed pages before they are stored. The caller holds the file's lock for
    /// writing. The request's epoch stays announced until this returns.
    func storeLater(
        _ file: OpenFile, firstPage: Int, count: Int, _ sealed: UnsafeRawPointer, epoch: UInt32
    ) throws(Errno) {
        let node = file.node
        // The file stays open and its node in the table until the pages are stored. A program that
        // opens it meanwhile sees these pages.
        hold(file)
        let added: PendingStores.Added
        do throws(Errno) {
            added = try pending.add(
                file, firstPage: firstPage, count: count, sealed, epoch: epoch)
        } catch {
            letGo(file)
            throw error
        }
        if !added.isFirst { letGo(file) }
        if added.needsStorer { pending.queue.add { [self] in storePending() } }
        withExtendedLifetime(node) {}
    }

    /// Adds a handle. Takes `openLock` inside the file's lock, against the lock order. The kernel's
    /// handle, still open, rules out the last close, which takes them in order.
    private func hold(_ file: OpenFile) {
        let node = file.node
        nodes.table.retain(node)
        node.openLock.withLock(outOfOrder: .storeLater) { file.uses.all.value += 1 }
    }

    /// Undoes `hold` while a handle of the kernel keeps the file open.
    private func letGo(_ file: OpenFile) {
        let node = file.node
        node.openLock.withLock(outOfOrder: .storeLater) { file.uses.all.value -= 1 }
        nodes.table.release(node, lookups: 1)
    }

    /// Stores runs of pages until none are left. Has a thread of its own, because the backing store
    /// may hang.
    private func storePending() {
        let buffer = UnsafeMutableRawPointer.allocate(
            byteCount: PendingStores.runBytes, alignment: 4096)
        defer { buffer.deallocate() }
        while let run = pending.nextRun(to: buffer) {
            let failure = store(run, buffer)
            if let failure {
                run.file.pendingPages.failure.store(failure.rawValue, ordering: .releasing)
                report(
                    .lost(
                        path: path(of: run.node),
                        reason: "mapped pages accepted at a lock: \(failure)"))
            }
            if pending.finish(run) {
                release(run.file, nil)
                nodes.table.release(run.node, lookups: 1)
            }
        }
    }

    /// Stores a run. Returns the error of pages that could not be stored.
    private func store(_ run: PendingStores.Run, _ buffer: UnsafeRawPointer) -> Errno? {
        let pageBytes = layout.pageBytes
        let descriptor = run.file.descriptor
        do throws(Errno) {
            try storage.pwrite(
                descriptor, buffer, run.pageCount * pageBytes, at: run.firstPage * pageBytes)
            return nil
        } catch {
            // One bad block, or a full disk: store what can be stored.
            var failure: Errno?
            for page in 0..<run.pageCount {
                do throws(Errno) {
                    try storage.pwrite(
                        descriptor, buffer + page * pageBytes, pageBytes,
                        at: (run.firstPage + page) * pageBytes)
                } catch {
                    failure = error
                }
            }
            return failure
        }
    }

    // MARK: Those who come later

    /// Waits until accepted pages are stored. Everything but `storeLater` calls it before it
    /// changes the file's pages or header. The caller holds the file's lock.
    @inline(__always)
    func settle(_ file: OpenFile) {
        if !file.pendingPages.areNone { awaitStores(of: file) }
    }

    private func awaitStores(of file: OpenFile) {
        pending.wait(retry: { pending.queue.retry() }) {
            file.pendingPages.areNone
        }
    }

    /// Waits until all accepted pages of epochs before `epoch` are stored.
    func awaitStores(before epoch: UInt32) {
        pending.wait(retry: { pending.queue.retry() }) { !pending.holdsPages(before: epoch) }
    }

    /// Counts a failed store of acknowledged pages as a failed sync, so that `fsync` reports it.
    func noteStoreFailure(_ file: OpenFile) {
        let failure = file.pendingPages.failure.exchange(0, ordering: .acquiringAndReleasing)
        guard failure != 0 else { return }
        file.syncs.noteFailure(Errno(rawValue: failure))
    }

    /// Waits for the backing store when the volume closes, and reports the files whose pages it did
    /// not take in time.
    func finishPending(within patience: Duration) {
        pending.queue.retry()
        guard !pending.wait(until: SystemClock.monotonic() + patience) else { return }
        for node in pending.nodes {
            report(
                .lost(
                    path: path(of: node),
                    reason: "mapped pages accepted at a lock: the store does not answer"))
        }
    }
}
