import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

// Epochs and durable points.
extension Volume {
    /// Whether anything was written since the last durable point.
    public var hasUnsyncedChanges: Bool {
        isDirty.load(ordering: .relaxed)
            || (isEpochDue.load(ordering: .relaxed) && !isEpochHeld.load(ordering: .relaxed))
    }

    /// About how many bytes were written since the last durable point, whether or not a program
    /// synced them itself.
    public var unsyncedBytes: Int { max(0, unsynced.load(ordering: .relaxed)) }

    /// Makes everything written so far durable and moves the epoch on. Called every few minutes of
    /// activity, at a lock and at shutdown, from a thread that serves no requests.
    public func durablePoint() throws(Errno) { try durablePoint(closing: false) }

    /// After the last request: writes hints, makes a durable point and marks the volume clean.
    public func close() throws(Errno) {
        ahead.stop()
        removedFiles.finish()
        finishPending(within: Volume.closePatience)
        background.drain()
        for node in nodesWithOpenFile {
            guard let file = node.file else { continue }
            file.lock.lockWrite()
            putHint(file)
            file.forgetKey()
            file.lock.unlock()
        }
        try durablePoint(closing: true)
    }

    private var nodesWithOpenFile: [Node] {
        openNodesLock.lockNow()
        defer { openNodesLock.unlock() }
        return Array(openNodes.values)
    }

    /// Takes off what cuts that failed have left behind open files: the sizes that are about to be
    /// durable are without it. The first file and error, where that can't be done now: the next
    /// sync of the file, or durable point, does it, or says why not.
    func finishCuts() -> (path: String, error: Errno)? {
        var failure: (path: String, error: Errno)?
        for node in nodesWithOpenFile {
            // It stays open meanwhile: what was closed may be another's to change by now.
            node.openLock.lockNow()
            let file = node.file.flatMap { $0.hasUncutPages ? $0 : nil }
            file?.handleCount += 1
            node.openLock.unlock()
            guard let file else { continue }
            defer { release(file, nil) }
            file.lock.lockWrite()
            defer { file.lock.unlock() }
            guard file.hasUncutPages else { continue }
            file.isEndUnsynced = true
            do throws(Errno) {
                try removeHint(file)
            } catch {
                failure = failure ?? (path(of: node), error)
            }
        }
        return failure
    }

    /// While a backup is made: what is written is made durable as ever, and the epoch and the state
    /// record stay, so that the record that is copied says of every page that is copied what it
    /// should. `close` goes on all the same.
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
        durablePointLock.lockNow()
        defer { durablePointLock.unlock() }
        if !closing, isEpochHeld.load(ordering: .relaxed) { return try syncStore() }
        isEpochDue.store(false, ordering: .relaxed)
        isDirty.store(false, ordering: .relaxed)
        let covered = unsynced.exchange(0, ordering: .relaxed)
        // After a failure the epoch has moved on already: the record's and one more is all that a
        // power cut excuses. At the end of the numbers the last one goes on: what is written in it
        // stays in doubt.
        let now = min(recordedEpoch, VolumeStateRecord.lastEpoch - 1) + 1
        epoch.store(now, ordering: .sequentiallyConsistent)
        // Requests that began under the old epoch are waited for: what they write is covered by the
        // sync below. No lock is held meanwhile: the store may hang, and a lock must not wait for
        // it.
        while isWriting(before: now) { usleep(50) }
        // So are pages that were accepted at a lock; at the end, only as long as `close` did.
        while !closing, pending.holdsPages(before: now) {
            storer.retry()
            usleep(500)
        }
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

    /// A durable point without an epoch of its own. The caller holds `durablePointLock`.
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
        // The record has to follow when the epoch goes on.
        isEpochDue.store(true, ordering: .relaxed)
    }

    /// syncfs(2): what was written and named before is durable. Fails, too, where another sync
    /// failed since `failures`, of `syncFailures`: it may have dropped what was written before, and
    /// the kernel has told its caller alone.
    func syncBackingStore(since failures: UInt64? = nil) throws(Errno) {
        let failures = failures ?? syncFailures.load(ordering: .acquiring)
        let names = namesMade.load(ordering: .acquiring)
        let (classes, headers) = (unsyncedClasses.made, unsyncedHeaders.made)
        let remembered = [unsyncedKeys, unsyncedCuts, movedFiles].map { ($0, $0.notesMade) }
        storeSyncLock.lockNow()
        defer { storeSyncLock.unlock() }
        do throws(Errno) {
            removedFiles.noteSync()
            try storage.syncfs(rootDescriptor)
            // A store that gave up says it here alone (`Syscall.syncFileSystem`).
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

    private func isWriting(before now: UInt32) -> Bool {
        var result = false
        forEachContext { context in
            let used = context.epochInUse.load(ordering: .sequentiallyConsistent)
            if used != 0, used < now { result = true }
        }
        return result
    }

    /// Goes on above an epoch that pages carry although the state record does not know of it: it is
    /// an older one. The next durable point writes that down.
    func skipEpochs(through seen: UInt32) {
        durablePointLock.lockNow()
        defer { durablePointLock.unlock() }
        guard seen < .max - 2, recordedEpoch <= seen else { return }
        recordedEpoch = seen
    }
}
