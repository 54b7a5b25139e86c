import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

// Epochs, durable points, and what an unclean end leaves behind (design §5).
extension Volume {
    /// Whether anything was written since the last durable point.
    public var hasUnsyncedChanges: Bool {
        isDirty.load(ordering: .relaxed)
            || (isEpochDue.load(ordering: .relaxed) && !isEpochHeld.load(ordering: .relaxed))
    }

    /// About how many bytes were written since the last durable point, whether or not a program synced them itself.
    public var unsyncedBytes: Int { max(0, unsynced.load(ordering: .relaxed)) }

    /// Makes everything written so far durable and moves the epoch on. Called every few minutes of activity, at a lock
    /// and at shutdown, from a thread that serves no requests.
    public func durablePoint() throws(Errno) { try durablePoint(closing: false) }

    /// After the last request: writes hints, makes a durable point and marks the volume clean.
    public func close() throws(Errno) {
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

    /// Takes off what cuts that failed have left behind open files: the sizes that are about to be durable are without it. The
    /// first error, where that can't be done now: the next sync of the file, or durable point, does it, or says why not.
    private func finishCuts() -> Errno? {
        var failure: Errno?
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
                failure = failure ?? error
            }
        }
        return failure
    }

    /// While a backup is made: what is written is made durable as ever, and the epoch and the state record stay, so that
    /// the record that is copied says of every page that is copied what it should. `close` goes on all the same.
    public func holdEpoch(_ isHeld: Bool) { isEpochHeld.store(isHeld, ordering: .relaxed) }

    private func durablePoint(closing: Bool) throws(Errno) {
        if isReadOnly { return }
        let failure = finishCuts()
        try syncEverything(closing: closing)
        if let failure, !closing {
            isDirty.store(true, ordering: .relaxed)
            report(.note("a durable point left a file with a size of before: \(failure)"))
            throw failure
        }
    }

    private func syncEverything(closing: Bool) throws(Errno) {
        durablePointLock.lockNow()
        defer { durablePointLock.unlock() }
        if !closing, isEpochHeld.load(ordering: .relaxed) { return try syncStore() }
        isEpochDue.store(false, ordering: .relaxed)
        isDirty.store(false, ordering: .relaxed)
        let covered = unsynced.exchange(0, ordering: .relaxed)
        // After a failure the epoch has moved on already: the record's and one more is all that a power cut excuses.
        let now = recordedEpoch &+ 1
        epoch.store(now, ordering: .sequentiallyConsistent)
        // Requests that began under the old epoch are waited for: what they write is covered by the sync below. No lock is
        // held meanwhile: the store may hang, and a lock must not wait for it.
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

    /// syncfs(2): what was written and named before is durable. Fails, too, where another sync failed since `failures`, of
    /// `syncFailures`: it may have dropped what was written before, and the kernel has told its caller alone.
    func syncBackingStore(since failures: UInt64? = nil) throws(Errno) {
        let failures = failures ?? syncFailures.load(ordering: .acquiring)
        let names = namesMade.load(ordering: .acquiring)
        let remembered = [unsyncedKeys, unsyncedCuts, movedFiles].map { ($0, $0.notesMade) }
        storeSyncLock.lockNow()
        defer { storeSyncLock.unlock() }
        do throws(Errno) {
            try storage.syncfs(rootDescriptor)
        } catch {
            noteFailedStoreSync()
            throw error
        }
        guard syncFailures.load(ordering: .acquiring) == failures else { throw .ioError }
        guard !lastDurablePointFailed.load(ordering: .relaxed) else { return }
        for (files, notes) in remembered { files.forget(through: notes) }
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

    /// After an unlock or a durable point, on a background thread: mends files of doubtful intervals; returns when there is nothing left
    /// that can be read now, or when `shouldStop` says so. The intervals end when every file could be seen.
    public func mendDoubtfulFiles(shouldStop: () -> Bool) {
        guard !isReadOnly, hasDoubt.load(ordering: .acquiring) else { return }
        let context = WorkerContext(volume: self)
        noteMendingDue(false)
        let before = halfDoneChanges
        let intervals = doubtful
        movedNodes.watch()
        defer { for node in movedNodes.unwatch() { table.release(node, lookups: 1) } }
        if mendDirectory(root, context, shouldStop, isWalk: true),
            mendMovedNodes(context, shouldStop)
        {
            if !endDoubt(of: intervals, ifHalfDoneIs: before) { noteMendingDue(true) }
        } else if ProtectionClass.allCases.allSatisfy({ gate.state(of: $0) == .open }) {
            // No unlock will change that: the store is asked again when it is well.
            noteMendingDue(true)
        }
    }

    /// What was moved while the pass went on: perhaps from where it had not been to where it had. False where something could
    /// not be seen.
    private func mendMovedNodes(_ context: WorkerContext, _ shouldStop: () -> Bool) -> Bool {
        while true {
            // Moves that the store has done are noted when they end.
            let end = SystemClock.monotonic() + Volume.movePatience
            while nameChanges.areUnderWay {
                if shouldStop() || SystemClock.monotonic() > end { return false }
                usleep(100)
            }
            guard let isSeen = mendThoseMoved(context, shouldStop) else { return true }
            if !isSeen { return false }
        }
    }

    /// Those that wait; nil where none does.
    private func mendThoseMoved(_ context: WorkerContext, _ shouldStop: () -> Bool) -> Bool? {
        guard let moved = movedNodes.take() else { return false }
        if moved.isEmpty { return nil }
        defer { for node in moved { table.release(node, lookups: 1) } }
        for node in moved where node.link != nil {
            let isSeen =
                node.isDirectory
                ? mendDirectory(node, context, shouldStop)
                : !node.isRegular || mendFile(node, context, shouldStop)
            if !isSeen { return false }
        }
        return true
    }

    /// A store that hangs in one for longer keeps the doubt.
    private static let movePatience = Duration.seconds(10)

    /// Every file was read and mended since these intervals were in doubt. False where that could not be written down, or a
    /// change was left half-done since `before`, of `halfDoneChanges`, perhaps in an interval that is one of these: then they stay.
    @discardableResult
    func endDoubt(of intervals: [ClosedRange<UInt32>], ifHalfDoneIs before: Int) -> Bool {
        // What could not be cut yet is excused by one of them.
        guard finishCuts() == nil else { return false }
        let isMended = changeDoubt {
            guard halfDone == before else { return false }
            $0.removeAll { intervals.contains($0) }
            return true
        }
        guard isMended else { return false }
        do throws(Errno) {
            try durablePoint()
        } catch {
            changeDoubt { $0 = intervals + $0.filter { !intervals.contains($0) } }
            return false
        }
        report(
            .note("every file of the last unclean end was checked: no epoch is in doubt any more"))
        return true
    }

    /// Goes on above an epoch that pages carry although the state record does not know of it: it is an older one. The next
    /// durable point writes that down.
    func skipEpochs(through seen: UInt32) {
        durablePointLock.lockNow()
        defer { durablePointLock.unlock() }
        guard seen < .max - 2, recordedEpoch <= seen else { return }
        recordedEpoch = seen
    }

    /// False where something could not be seen: the doubt stays. `isWalk`: what was moved meanwhile is looked at in between.
    private func mendDirectory(
        _ directory: Node, _ context: WorkerContext, _ shouldStop: () -> Bool,
        isWalk: Bool = false
    ) -> Bool {
        var isComplete = true
        var stored: [[CChar]] = []
        guard let descriptor = try? directoryDescriptor(of: directory),
            let state = try? directoryState(of: directory),
            (try? storage.list(
                descriptor.rawValue,
                { entry in
                    guard entry.type != UInt8(DT_LNK), isOurs(entry.name, in: state) else { return }
                    stored.append(entry.name.map { CChar(bitPattern: $0) } + [0])
                })) != nil
        else { return false }
        for name in stored {
            if shouldStop() { return false }
            // Not to hold many of them, with what was replaced meanwhile, until the end.
            if isWalk, movedNodes.areWaiting, mendThoseMoved(context, shouldStop) == false {
                isComplete = false
            }
            let status: FileStatus
            do throws(Errno) {
                status = try storage.fstatat(descriptor.rawValue, name)
            } catch {
                if !Volume.isGone(error) { isComplete = false }
                continue
            }
            let type = status.st_mode & S_IFMT
            guard type == S_IFDIR || type == S_IFREG else { continue }
            let node = table.retain(inode: UInt64(status.st_ino), type: type)
            node.addLink(directory, name)
            defer { table.release(node, lookups: 1) }
            if type == S_IFDIR {
                if !mendDirectory(node, context, shouldStop, isWalk: isWalk) { isComplete = false }
            } else if !mendFile(node, context, shouldStop) {
                isComplete = false
            }
        }
        return isComplete
    }

    /// Reads every page of a file; pages that only a doubt excuses are written anew. False where the file's class is
    /// not open now. Damage that nothing excuses is left as it is, for `EIO` to report.
    func mendFile(
        _ node: Node, _ context: WorkerContext, _ shouldStop: () -> Bool
    ) -> Bool {
        let file: OpenFile
        let wasNew: Bool
        let lastPageOffset: Int
        do throws(Errno) {
            (file, wasNew, lastPageOffset) = try acquire(node, context)
        } catch {
            return Volume.isGone(error) || error == .ioError && isDamaged(node, context, shouldStop)
        }
        defer { release(file, context) }
        // Of one that is open, too: a failed sync may have left in memory what is not on the disk. Where that is another first
        // page, nothing can be said of the rest before it is closed.
        if !wasNew {
            storage.forgetCached(file.descriptor)
            guard hasOwnFirstPage(file) else { return false }
        }
        do throws(Errno) {
            file.lock.lockWrite()
            defer { file.lock.unlock() }
            try mendAttributes(file)
        } catch {
            return Volume.isGone(error)
        }
        guard file.sizeBytes > 0 else { return true }
        if wasNew {
            file.lock.lockWrite()
            defer { file.lock.unlock() }
            defer { context.forgetExcuses() }
            guard
                (try? examineEnd(
                    file, lastPageOffset: lastPageOffset, .mend, Volume.ownCaller, context)) != nil,
                (try? enter(file, .mend, Volume.ownCaller, context)) != nil
            else { return false }
            defer { context.unlockContent() }
            try? verifyEnd(file, lastPageOffset: lastPageOffset, context)
        }
        let before = halfDoneChanges
        var page = 0
        while true {
            if shouldStop() { return false }
            file.lock.lockWrite()
            let pages = layout.pageCount(forSize: file.sizeBytes)
            if page >= pages {
                file.isBeyondDoubt = true
                // Noted meanwhile, perhaps before this.
                if halfDoneChanges != before { file.isBeyondDoubt = false }
                file.lock.unlock()
                return true
            }
            let outcome = mendPage(file, page, isLast: page == pages - 1, context)
            file.lock.unlock()
            if !outcome { return false }
            page += 1
        }
    }

    private func hasOwnFirstPage(_ file: OpenFile) -> Bool {
        file.lock.lockRead()
        defer { file.lock.unlock() }
        if file.sizeBytes == 0 { return true }
        let isOwn = try? withTemporaryPage { page throws(Errno) in
            try readPage(file, 0, to: page)
            return file.hasOwnRecord(page)
        }
        return isOwn ?? false
    }

    private func mendPage(
        _ file: OpenFile, _ page: Int, isLast: Bool, _ context: WorkerContext
    ) -> Bool {
        do throws(Errno) {
            try readPage(file, page, to: context.sealed)
            let record = context.sealed + layout.recordOffset(ofPage: page)
            let prefix = RecordPrefix(reading: record)
            let start = layout.start(ofPage: page)
            let length = isLast ? file.sizeBytes - start : layout.capacity(ofPage: page)
            let isAsExpected = Int(prefix.length) == length && prefix.isFinal == isLast
            let isHole =
                page > 0 && !isLast && file.header?.isSparse == true
                && isZero(record, layout.pageBytes)
            if isAsExpected || isHole { return true }
            defer { context.forgetExcuses() }
            try examine(file, page: page, context.sealed, .mend, Volume.ownCaller, context)
            try enter(file, .mend, Volume.ownCaller, context)
            context.usePlain(layout.pageBytes)
            do throws(Errno) {
                try decode(file, page: page, context.sealed, to: context.plain, context)
            } catch {
                context.unlockContent()
                // Of what is in memory by now: the page is damaged.
                return error == .ioError
            }
            // Written through the ordinary path, from a copy that is scrubbed.
            return withUnsafeTemporaryAllocation(byteCount: length, alignment: 16) { copy in
                copy.baseAddress!.copyMemory(from: context.plain, byteCount: length)
                context.unlockContent()
                defer { explicit_bzero(copy.baseAddress!, length) }
                return
                    (try? store(
                        file, .data(copy.baseAddress!), offset: start, count: length, .mend,
                        Volume.ownCaller, context)) != nil
            }
        } catch {
            return Volume.isGone(error)
        }
    }

    /// Whether an error says all that there is to know of a file: it is gone. Anything else (no descriptor, no memory, no
    /// key, a store that does not answer or can't be read) may pass, and the doubt stays until it has.
    static func isGone(_ error: Errno) -> Bool {
        error == .noSuchFileOrDirectory || error == .staleNFSFileHandle
    }

    /// Whether a file that gave `EIO` is damaged, and not the store: all of it can be read, and it gives `EIO` again.
    private func isDamaged(
        _ node: Node, _ context: WorkerContext, _ shouldStop: () -> Bool
    ) -> Bool {
        do throws(Errno) {
            let opened = try openBacking(node)
            defer { storage.close(opened.descriptor) }
            let size = Int(opened.status.st_size)
            try withTemporaryPage { buffer throws(Errno) in
                var at = 0
                while at < size {
                    if shouldStop() { throw .canceled }
                    do throws(Errno) {
                        // Holes are skipped; where the store can't tell, everything is read.
                        at = max(at, try storage.lseek(opened.descriptor, at, SEEK_DATA))
                    } catch {
                        if error.rawValue == ENXIO { break }
                    }
                    _ = try storage.pread(opened.descriptor, buffer, 8192, at: at)
                    at += 8192
                }
            }
        } catch {
            return Volume.isGone(error)
        }
        do throws(Errno) {
            release(try acquire(node, context).file, context)
            return false
        } catch {
            return error == .ioError
        }
    }

    static let ownCaller = Caller(uid: 0, gid: 0, pid: 0)
}
