import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Files in doubt. After a power cut or a half-done change, every file is read, and pages that only
// the doubt excuses are written anew. Then the doubt ends (format.md §8).
extension Volume {
    /// Mends files of doubtful epochs. Runs on a background thread after an unlock or a durable
    /// point. Returns when no more can be read now, or when `shouldStop` says so. The doubt ends
    /// when every file was readable.
    public func mendDoubtfulFiles(shouldStop: () -> Bool) {
        guard !isReadOnly, durability.doubt.isOpen else { return }
        guard let context = try? WorkerContext(allocatingFor: self) else {
            return durability.doubt.noteMendingDue(true)
        }
        durability.doubt.noteMendingDue(false)
        let before = durability.doubt.halfDoneChanges
        let intervals = durability.doubt.intervals
        names.movedNodes.watch()
        defer { for node in names.movedNodes.unwatch() { nodes.table.release(node, lookups: 1) } }
        if mendDirectory(root, context, shouldStop, isWalk: true),
            mendMovedNodes(context, shouldStop)
        {
            if !endDoubt(of: intervals, ifHalfDoneIs: before) {
                durability.doubt.noteMendingDue(true)
            }
        } else if ProtectionClass.allCases.allSatisfy({ gate.classes.state(of: $0) == .open }) {
            // An unlock would not help: the next pass waits until the backing store works again.
            durability.doubt.noteMendingDue(true)
        }
    }

    /// Mends nodes that moved during the pass, because the walk may have missed them. Returns false
    /// if a node could not be read, or if moves come faster than reads. A later pass then sees
    /// them.
    private func mendMovedNodes(_ context: WorkerContext, _ shouldStop: () -> Bool) -> Bool {
        for _ in 0..<Volume.mostRoundsOfMoved {
            // A move that the backing store has done is noted when the request ends.
            let end = SystemClock.monotonic() + Volume.movePatience
            while names.changes.areUnderWay {
                if shouldStop() || SystemClock.monotonic() > end { return false }
                usleep(100)
            }
            guard let isSeen = mendThoseMoved(context, shouldStop) else { return true }
            if !isSeen { return false }
        }
        return false
    }

    /// Mends the moved nodes that wait. Returns nil if none wait, false if one could not be read.
    private func mendThoseMoved(_ context: WorkerContext, _ shouldStop: () -> Bool) -> Bool? {
        guard let moved = names.movedNodes.take() else { return false }
        if moved.isEmpty { return nil }
        defer { for node in moved { nodes.table.release(node, lookups: 1) } }
        for node in moved {
            guard let link = node.link else { continue }
            let isSeen =
                node.isDirectory
                ? mendDirectory(node, context, shouldStop)
                : !node.isRegular || mendFile(node, context, shouldStop)
            if !isSeen, !isGone(node, link) { return false }
        }
        return true
    }

    /// Whether a node was removed meanwhile, or moved again. Then it waits again.
    private func isGone(_ node: Node, _ link: NodeLink) -> Bool {
        if node.link == nil { return true }
        guard let parent = try? backing.directoryDescriptor(of: link.parent) else { return false }
        return store.isGone(node.inode, parent.rawValue, link.name)
    }

    private static let mostRoundsOfMoved = 100

    /// If a move hangs in the backing store for longer, the doubt stays.
    private static let movePatience = Duration.seconds(10)

    /// Removes these intervals from the doubt: every file was read and mended since. Returns false
    /// and keeps them if the state record could not be written. The same holds if a change was left
    /// half-done since `before` (a value of `halfDoneChanges`), perhaps in one of them.
    @discardableResult
    func endDoubt(of intervals: [ClosedRange<UInt32>], ifHalfDoneIs before: Int) -> Bool {
        // These intervals excuse cuts that are not finished.
        guard finishCuts() == nil else { return false }
        guard durability.doubt.end(intervals, ifHalfDoneIs: before) else { return false }
        do throws(Errno) {
            try durablePoint()
        } catch {
            durability.doubt.change { $0 = intervals + $0.filter { !intervals.contains($0) } }
            return false
        }
        report(
            .note("every file of the last unclean end was checked: no epoch is in doubt any more"))
        return true
    }

    /// Mends everything below a directory. Returns false if a file could not be read: then the
    /// doubt stays. `isWalk`: also mends moved nodes in between.
    private func mendDirectory(
        _ directory: Node, _ context: WorkerContext, _ shouldStop: () -> Bool,
        isWalk: Bool = false
    ) -> Bool {
        var isComplete = true
        var stored: [[CChar]] = []
        guard let descriptor = try? backing.directoryDescriptor(of: directory),
            let state = try? backing.directoryState(of: directory),
            (try? storage.list(
                descriptor.rawValue,
                { entry in
                    guard entry.type != UInt8(DT_LNK), keys.names.isOurs(entry.name, in: state)
                    else { return }
                    stored.append(entry.name.zeroTerminated)
                })) != nil
        else { return false }
        for name in stored {
            if shouldStop() { return false }
            // Moved nodes are mended early: each holds memory, and perhaps the file that it
            // replaced.
            if isWalk, names.movedNodes.areWaiting, mendThoseMoved(context, shouldStop) == false {
                isComplete = false
            }
            let status: FileStatus
            do throws(Errno) {
                status = try storage.fstatat(descriptor.rawValue, name)
            } catch {
                if !BackingStore.isGone(error) || !store.isGone(nil, descriptor.rawValue, name) {
                    isComplete = false
                }
                continue
            }
            let type = status.st_mode & S_IFMT
            guard type == S_IFDIR || type == S_IFREG else { continue }
            let node = nodes.table.retain(inode: UInt64(status.st_ino), type: type)
            node.addLink(directory, name)
            defer { nodes.table.release(node, lookups: 1) }
            if type == S_IFDIR {
                if !mendDirectory(node, context, shouldStop, isWalk: isWalk) { isComplete = false }
            } else if !mendFile(node, context, shouldStop),
                !store.isGone(node.inode, descriptor.rawValue, name)
            {
                isComplete = false
            }
        }
        return isComplete
    }

    /// Reads every page of a file and rewrites pages that only a doubt excuses.
    ///
    /// A page whose length and FINAL are as expected is not authenticated here. So a torn page
    /// stays. It is `EIO` for a read, and a finding of `ward check`.
    ///
    /// Returns false if the file's class is not open now or the file could not be read. It may be
    /// gone: see `isGone`. Damage that nothing excuses stays, and gives `EIO` later.
    func mendFile(
        _ node: Node, _ context: WorkerContext, _ shouldStop: () -> Bool
    ) -> Bool {
        let file: OpenFile
        let wasNew: Bool
        let lastPageOffset: Int
        do throws(Errno) {
            (file, wasNew, lastPageOffset) = try acquire(node, context)
        } catch {
            return error == .ioError && isDamaged(node, context, shouldStop)
        }
        defer { release(file, context) }
        guard let isNew = isNewborn(file, shouldStop) else { return false }
        if isNew { return true }
        // After a failed sync, memory may differ from the disk, also for an open file. If the disk
        // has another first page, the rest can't be judged before the file is closed.
        if !wasNew {
            storage.forgetCached(file.descriptor)
            guard hasOwnFirstPage(file) else { return false }
        }
        do throws(Errno) {
            try file.withWriteAccess { access throws(Errno) in try mendAttributes(access) }
        } catch {
            return false
        }
        guard file.sizeBytes > 0 else { return true }
        if wasNew, !verifyNewEnd(file, lastPageOffset, context) { return false }
        let before = durability.doubt.halfDoneChanges
        var walk = PageWalk(self, file)
        while true {
            if shouldStop() { return false }
            // Nil while there are more pages.
            let isMended: Bool? = file.withWriteAccess { access in
                do throws(Errno) {
                    // A page that nothing excuses is left as it is.
                    _ = try walk.skip { last throws(Errno) in
                        try authenticatedEpoch(file, last, .mend, Caller.volume, context) != nil
                    }
                    let (page, pages) = (walk.page, walk.pages)
                    if page >= pages {
                        file.notes.isBeyondDoubt.value = true
                        // A half-done change may have been noted just before this.
                        if durability.doubt.halfDoneChanges != before {
                            file.notes.isBeyondDoubt.value = false
                        }
                        return true
                    }
                    try readPage(file, page, to: context.sealed)
                    walk.looked(at: 1, areZeros: isZero(context.sealed, layout.pageBytes))
                    return mendPage(access, page, isLast: page == pages - 1, context) ? nil : false
                } catch {
                    return false
                }
            }
            if let isMended { return isMended }
        }
    }

    /// Judges the end of a file that was opened just now. False where it can't be read.
    private func verifyNewEnd(
        _ file: OpenFile, _ lastPageOffset: Int, _ context: WorkerContext
    ) -> Bool {
        file.withWriteAccess { access in
            defer { context.excuses.forget() }
            do throws(Errno) {
                try examineEnd(file, lastPageOffset: lastPageOffset, .mend, Caller.volume, context)
                try withContent(of: file, .mend, Caller.volume, context) { content in
                    try? verifyEnd(access, lastPageOffset: lastPageOffset, content)
                }
                return true
            } catch {
                return false
            }
        }
    }

    private func hasOwnFirstPage(_ file: OpenFile) -> Bool {
        return file.withReadLock {
            if file.sizeBytes == 0 { return true }
            let isOwn = try? withTemporaryPage { page throws(Errno) in
                try readPage(file, 0, to: page)
                return file.headers.isOwnRecord(page)
            }
            return isOwn ?? false
        }
    }

    /// Mends one page, which the caller has read into `context.sealed`.
    private func mendPage(
        _ access: borrowing FileWriteAccess, _ page: Int, isLast: Bool, _ context: WorkerContext
    ) -> Bool {
        let file = access.file
        do throws(Errno) {
            let record = context.sealed + layout.recordOffset(ofPage: page)
            let prefix = RecordPrefix(reading: record)
            let start = layout.start(ofPage: page)
            let length = isLast ? file.sizeBytes - start : layout.capacity(ofPage: page)
            let isAsExpected = Int(prefix.length) == length && prefix.isFinal == isLast
            let isHole =
                page > 0 && !isLast && file.header?.isSparse == true
                && isZero(record, layout.pageBytes)
            if isAsExpected || isHole { return true }
            defer { context.excuses.forget() }
            try examine(file, page: page, context.sealed, .mend, Caller.volume, context)
            // Written through the ordinary path, from a copy that is scrubbed.
            return withUnsafeTemporaryAllocation(byteCount: length, alignment: 16) { copy in
                let copy = copy.baseAddress!
                defer { explicit_bzero(copy, length) }
                do throws(Errno) {
                    try withContent(of: file, .mend, Caller.volume, context) {
                        content throws(Errno) in
                        content.usePlain(layout.pageBytes)
                        try decode(file, page: page, context.sealed, to: context.plain, content)
                        copy.copyMemory(from: context.plain, byteCount: length)
                    }
                } catch {
                    // `EIO`: the page was read without an error, so it is damaged.
                    return error == .ioError
                }
                return
                    (try? store(
                        access, .data(copy), offset: start, count: length, .mend,
                        Caller.volume, context)) != nil
            }
        } catch {
            return false
        }
    }

    /// Whether `EIO` came from a damaged file and not from the backing store: all of the file can
    /// be read, and it gives `EIO` again.
    private func isDamaged(
        _ node: Node, _ context: WorkerContext, _ shouldStop: () -> Bool
    ) -> Bool {
        do throws(Errno) {
            let opened = try backing.open(node)
            defer { storage.close(opened.descriptor) }
            let end = Int(opened.status.st_size) / layout.pageBytes + 1
            try withTemporaryPage { buffer throws(Errno) in
                var next = 0
                while case .page(let page) = try nextPageWithData(
                    opened.descriptor, from: next, before: end, to: buffer)
                {
                    if shouldStop() { throw .canceled }
                    next = page + 1
                }
            }
        } catch {
            return false
        }
        do throws(Errno) {
            release(try acquire(node, context).file, context)
            return false
        } catch {
            return error == .ioError
        }
    }
}
