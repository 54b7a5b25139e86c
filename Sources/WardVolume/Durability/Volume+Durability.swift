import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

// Epochs and durable points.
extension Volume {
    /// Whether a durable point is due: something was written since the last one.
    public var hasUnsyncedChanges: Bool {
        isDirty.load(ordering: .relaxed)
            || (isEpochDue.load(ordering: .relaxed) && !isEpochHeld.load(ordering: .relaxed))
    }

    /// About how many bytes were written since the last durable point. Includes bytes that a
    /// program synced itself.
    public var unsyncedBytes: Int { max(0, unsynced.load(ordering: .relaxed)) }

    /// Makes everything written so far durable and advances the epoch. The daemon calls it every
    /// few minutes of activity, at a lock and at shutdown, from a thread that is no worker.
    public func durablePoint() throws(Errno) { try durablePoint(closing: false) }

    /// Ends the volume after the last request: writes hints, makes a durable point and marks the
    /// volume clean.
    public func close() throws(Errno) {
        ahead.stop()
        removedFiles.finish()
        finishPending(within: Volume.closePatience)
        background.drain()
        for node in nodesWithOpenFile {
            guard let file = node.file else { continue }
            file.lock.withWriteLock {
                putHint(file)
                file.key.forget()
            }
        }
        try durablePoint(closing: true)
    }

    private var nodesWithOpenFile: [Node] {
        openNodesLock.withLock { Array(openNodes.values) }
    }

    /// Finishes failed cuts behind open files, so that a durable point stores their present size.
    /// Returns the first file and error if a cut fails again. The file's next sync or the next
    /// durable point then retries.
    func finishCuts() -> (path: String, error: Errno)? {
        var failure: (path: String, error: Errno)?
        for node in nodesWithOpenFile {
            // The handle keeps the file open meanwhile: another thread could reopen and change a
            // closed file.
            let file = node.openLock.withLock {
                let file = node.file.flatMap { $0.published.hasUncutPages ? $0 : nil }
                file?.uses.all.value += 1
                return file
            }
            guard let file else { continue }
            defer { release(file, nil) }
            file.lock.withWriteLock {
                guard file.extent.hasUncutPages else { return }
                file.extent.cutIsDue()
                do throws(Errno) {
                    try removeHint(file)
                } catch {
                    failure = failure ?? (path(of: node), error)
                }
            }
        }
        return failure
    }

    /// Holds the epoch while a backup is made. Durable points still sync, but the epoch and the
    /// state record stay. So the copied record is right for each copied page. `close` advances the
    /// epoch even so.
    public func holdEpoch(_ isHeld: Bool) { isEpochHeld.store(isHeld, ordering: .relaxed) }

    private func durablePoint(closing: Bool) throws(Errno) {
        if isReadOnly { return }
        let failure = finishCuts()
        try syncEverything(closing: closing)
        if let failure, !closing {
            isDirty.store(true, ordering: .relaxed)
            report(
                .note(
                    "no durable point: the store can't cut \(failure.path) to its size: \(failure.error)"
                )
            )
            throw failure.error
        }
    }

    private func syncEverything(closing: Bool) throws(Errno) {
        try durablePointLock.withLock { () throws(Errno) in
            if !closing, isEpochHeld.load(ordering: .relaxed) { return try syncStore() }
            isEpochDue.store(false, ordering: .relaxed)
            isDirty.store(false, ordering: .relaxed)
            let covered = unsynced.exchange(0, ordering: .relaxed)
            // After a failure the epoch has advanced already. Only the record's epoch and one more
            // are excused after a power cut. At the end of the numbers the last epoch stays in use,
            // and its pages stay in doubt.
            let now = min(recordedEpoch, VolumeStateRecord.lastEpoch - 1) + 1
            epoch.store(now, ordering: .sequentiallyConsistent)
            // Wait for requests that began under the old epoch: the sync below must cover their
            // writes. No lock is held, because the backing store may hang and a lock must not wait
            // for it.
            while isWriting(before: now) { usleep(50) }
            // Wait also for pages that were accepted at a lock. `close` has waited for them
            // already, for a limited time.
            if !closing { awaitStores(before: now) }
            do throws(Errno) {
                try syncBackingStore()
                if !lastDurablePointFailed.load(ordering: .relaxed) {
                    namesDurableBefore.store(now, ordering: .releasing)
                }
                if lastDurablePointFailed.load(ordering: .relaxed) {
                    if closing { report(.note("the volume stays marked as in use: a sync failed")) }
                    return
                }
                try VolumeRoot.writeState(
                    VolumeStateRecord(isInUse: !closing, epoch: now, doubtful: doubtful),
                    rootDescriptor, keys, storage)
                recordedEpoch = now
            } catch {
                isDirty.store(true, ordering: .relaxed)
                unsynced.wrappingAdd(covered, ordering: .relaxed)
                report(.note("a durable point failed: \(error)"))
                throw error
            }
        }
    }

    /// Makes a durable point without a new epoch. The caller holds `durablePointLock`.
    private func syncStore() throws(Errno) {
        isDirty.store(false, ordering: .relaxed)
        let covered = unsynced.exchange(0, ordering: .relaxed)
        do throws(Errno) {
            try syncBackingStore()
        } catch {
            isDirty.store(true, ordering: .relaxed)
            unsynced.wrappingAdd(covered, ordering: .relaxed)
            report(.note("a durable point failed: \(error)"))
            throw error
        }
        // The state record has to follow when the epoch advances.
        isEpochDue.store(true, ordering: .relaxed)
    }

    /// Makes all earlier writes and names durable, syncfs(2). Throws `EIO` if another sync failed
    /// since `failures` (a value of `syncFailures`). That sync may have lost earlier writes, and
    /// the kernel reported the failure only to its caller.
    func syncBackingStore(since failures: UInt64? = nil) throws(Errno) {
        let failures = failures ?? syncFailures.load(ordering: .acquiring)
        let names = namesMade.load(ordering: .acquiring)
        let (classes, headers) = (unsyncedClasses.made, unsyncedHeaders.made)
        let remembered = [unsyncedKeys, unsyncedCuts, movedFiles].map { ($0, $0.notesMade) }
        try storeSyncLock.withLock { () throws(Errno) in
            do throws(Errno) {
                removedFiles.noteSync()
                try storage.syncfs(rootDescriptor)
                // A backing file system that shut itself down reports it only here
                // (`Syscall.syncFileSystem`).
                try storage.fsync(rootDescriptor)
            } catch {
                noteFailedStoreSync()
                throw error
            }
            streaming.settle()
            guard syncFailures.load(ordering: .acquiring) == failures else { throw .ioError }
            guard !lastDurablePointFailed.load(ordering: .relaxed) else { return }
            for (files, notes) in remembered { files.forget(through: notes) }
            unsyncedClasses.noteSync(of: classes)
            unsyncedHeaders.noteSync(of: headers)
            namesSynced.store(names, ordering: .releasing)
        }
    }

    private func isWriting(before now: UInt32) -> Bool {
        var result = false
        forEachContext { context in
            let used = context.epochInUse.load(ordering: .sequentiallyConsistent)
            if used != 0, used < now { result = true }
        }
        return result
    }

    /// Advances past an epoch that pages carry although the state record is older. The next durable
    /// point records it.
    func skipEpochs(through seen: UInt32) {
        durablePointLock.withLock {
            guard seen < .max - 2, recordedEpoch <= seen else { return }
            recordedEpoch = seen
        }
    }
}
