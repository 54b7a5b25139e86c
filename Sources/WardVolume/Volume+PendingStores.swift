import Glibc
import Synchronization
import WardSystem

// What is accepted while a class is closing, and stored afterwards (decision 0012).
extension Volume {
    /// How long `close` waits for a store that does not answer.
    static let closePatience = Duration.seconds(30)

    /// Bytes of ciphertext that were accepted at a lock and have not reached the store.
    public var pendingStoreBytes: Int { pending.bytes }

    /// Acknowledges whole sealed pages before they are stored. The file's lock is held for writing;
    /// the request's epoch is announced until this returns.
    func storeLater(
        _ file: OpenFile, firstPage: Int, count: Int, _ sealed: UnsafeRawPointer, epoch: UInt32
    ) throws(Errno) {
        let node = file.node
        // Until its pages are stored the file stays open, and the node what its name leads to:
        // whoever opens it meanwhile sees these pages.
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
        if added.needsStorer { storer.run { [self] in storePending() } }
        withExtendedLifetime(node) {}
    }

    private func hold(_ file: OpenFile) {
        let node = file.node
        table.retain(node)
        node.openLock.lockNow()
        file.handleCount += 1
        node.openLock.unlock()
    }

    /// Takes `hold` back while a handle of the kernel's keeps the file open.
    private func letGo(_ file: OpenFile) {
        let node = file.node
        node.openLock.lockNow()
        file.handleCount -= 1
        node.openLock.unlock()
        table.release(node, lookups: 1)
    }

    /// Stores until nothing is left. On a thread of its own: the store may hang.
    private func storePending() {
        let buffer = UnsafeMutableRawPointer.allocate(
            byteCount: PendingStores.runBytes, alignment: 4096)
        defer { buffer.deallocate() }
        while let run = pending.nextRun(to: buffer) {
            let failure = store(run, buffer)
            if let failure {
                run.file.storeFailure.store(failure.rawValue, ordering: .releasing)
                report(
                    .lost(
                        path: path(of: run.node),
                        reason: "mapped pages accepted at a lock: \(failure)"))
            }
            if pending.finish(run) {
                release(run.file, nil)
                table.release(run.node, lookups: 1)
            }
        }
    }

    /// The error of the pages that could not be stored.
    private func store(_ run: PendingStores.Run, _ buffer: UnsafeRawPointer) -> Errno? {
        let pageBytes = layout.pageBytes
        let descriptor = run.file.descriptor
        do throws(Errno) {
            try storage.pwrite(
                descriptor, buffer, run.pageCount * pageBytes, at: run.firstPage * pageBytes)
            return nil
        } catch {
            // One bad block, or the last free one: what can be stored is.
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

    /// Before anything but `storeLater` changes the file's pages or header: waits until what was
    /// accepted is stored. The file's lock is held.
    @inline(__always)
    func settle(_ file: OpenFile) {
        while file.pendingPages.load(ordering: .acquiring) != 0 {
            storer.retry()
            usleep(200)
        }
    }

    /// A store that failed after it was acknowledged counts as a failed sync: `fsync` tells.
    func noteStoreFailure(_ file: OpenFile) {
        let failure = file.storeFailure.exchange(0, ordering: .acquiringAndReleasing)
        guard failure != 0 else { return }
        file.noteSyncFailure(Errno(rawValue: failure))
    }

    /// At the end: waits for the store, and names what it did not take in time.
    func finishPending(within patience: Duration) {
        storer.retry()
        guard !pending.wait(until: SystemClock.monotonic() + patience) else { return }
        for node in pending.nodes {
            report(
                .lost(
                    path: path(of: node),
                    reason: "mapped pages accepted at a lock: the store does not answer"))
        }
    }
}
