import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// Mends one file in doubt at a time: reads its pages and writes anew what only a doubt excuses. A
/// pass (`Mender`) uses it for each file, a check for those that it repairs.
///
/// Concurrency: its thread alone, with that thread's context. It takes `OpenFile.lock` exclusively
/// for each page.
struct FileMender {
    private let volume: Volume
    private let context: WorkerContext
    private let doubt: Doubt
    private let shouldStop: () -> Bool

    init(_ volume: Volume, _ context: WorkerContext, shouldStop: @escaping () -> Bool) {
        self.volume = volume
        self.context = context
        doubt = volume.durability.doubt
        self.shouldStop = shouldStop
    }

    /// Reads every page of a file and rewrites pages that only a doubt excuses.
    ///
    /// A page whose length and FINAL are as expected is not authenticated here. So a torn page
    /// stays. It is `EIO` for a read, and a finding of `ward check`.
    ///
    /// Returns false if the file's class is not open now or the file could not be read. It may be
    /// gone: see `BackingStore.isGone`. Damage that nothing excuses stays, and gives `EIO` later.
    func mend(_ node: Node) -> Bool {
        let file: OpenFile
        let wasNew: Bool
        let lastPageOffset: Int
        do throws(Errno) {
            (file, wasNew, lastPageOffset) = try volume.acquire(node, context)
        } catch {
            return error == .ioError && isDamaged(node)
        }
        defer { volume.release(file, context) }
        guard let isNew = volume.isNewborn(file, shouldStop) else { return false }
        if isNew { return true }
        // After a failed sync, memory may differ from the disk, also for an open file. If the disk
        // has another first page, the rest can't be judged before the file is closed.
        if !wasNew {
            volume.storage.forgetCached(file.descriptor)
            guard hasOwnFirstPage(file) else { return false }
        }
        do throws(Errno) {
            try file.withWriteAccess { access throws(Errno) in try volume.mendAttributes(access) }
        } catch {
            return false
        }
        guard file.sizeBytes > 0 else { return true }
        if wasNew, !verifyNewEnd(file, lastPageOffset) { return false }
        let before = doubt.halfDoneChanges
        var walk = PageWalk(volume, file)
        while true {
            if shouldStop() { return false }
            // Nil while there are more pages.
            let isMended: Bool? = file.withWriteAccess { access in
                do throws(Errno) {
                    // A page that nothing excuses is left as it is.
                    _ = try walk.skip { last throws(Errno) in
                        try volume.authenticatedEpoch(file, last, .mend, Caller.volume, context)
                            != nil
                    }
                    let (page, pages) = (walk.page, walk.pages)
                    if page >= pages {
                        file.notes.isBeyondDoubt.value = true
                        // A half-done change may have been noted just before this.
                        if doubt.halfDoneChanges != before {
                            file.notes.isBeyondDoubt.value = false
                        }
                        return true
                    }
                    try volume.readPage(file, page, to: context.sealed)
                    walk.looked(
                        at: 1, areZeros: volume.isZero(context.sealed, volume.layout.pageBytes))
                    return mendPage(access, page, isLast: page == pages - 1) ? nil : false
                } catch {
                    return false
                }
            }
            if let isMended { return isMended }
        }
    }

    /// Judges the end of a file that was opened just now. False where it can't be read.
    private func verifyNewEnd(_ file: OpenFile, _ lastPageOffset: Int) -> Bool {
        file.withWriteAccess { access in
            defer { context.excuses.forget() }
            do throws(Errno) {
                try volume.examineEnd(
                    file, lastPageOffset: lastPageOffset, .mend, Caller.volume, context)
                try volume.withContent(of: file, .mend, Caller.volume, context) { content in
                    try? volume.verifyEnd(access, lastPageOffset: lastPageOffset, content)
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
            let isOwn = try? volume.withTemporaryPage { page throws(Errno) in
                try volume.readPage(file, 0, to: page)
                return file.headers.isOwnRecord(page)
            }
            return isOwn ?? false
        }
    }

    /// Mends one page, which the caller has read into `context.sealed`.
    private func mendPage(
        _ access: borrowing FileWriteAccess, _ page: Int, isLast: Bool
    ) -> Bool {
        let file = access.file
        let layout = volume.layout
        do throws(Errno) {
            let record = context.sealed + layout.recordOffset(ofPage: page)
            let prefix = RecordPrefix(reading: record)
            let start = layout.start(ofPage: page)
            let length = isLast ? file.sizeBytes - start : layout.capacity(ofPage: page)
            let isAsExpected = Int(prefix.length) == length && prefix.isFinal == isLast
            let isHole =
                page > 0 && !isLast && file.header?.isSparse == true
                && volume.isZero(record, layout.pageBytes)
            if isAsExpected || isHole { return true }
            defer { context.excuses.forget() }
            try volume.examine(file, page: page, context.sealed, .mend, Caller.volume, context)
            // Written through the ordinary path, from a copy that is scrubbed.
            return withUnsafeTemporaryAllocation(byteCount: length, alignment: 16) { copy in
                let copy = copy.baseAddress!
                defer { explicit_bzero(copy, length) }
                do throws(Errno) {
                    try volume.withContent(of: file, .mend, Caller.volume, context) {
                        content throws(Errno) in
                        content.usePlain(layout.pageBytes)
                        try volume.decode(
                            file, page: page, context.sealed, to: context.plain, content)
                        copy.copyMemory(from: context.plain, byteCount: length)
                    }
                } catch {
                    // `EIO`: the page was read without an error, so it is damaged.
                    return error == .ioError
                }
                return
                    (try? volume.store(
                        access, .data(copy), offset: start, count: length, .mend,
                        Caller.volume, context)) != nil
            }
        } catch {
            return false
        }
    }

    /// Whether `EIO` came from a damaged file and not from the backing store: all of the file can
    /// be read, and it gives `EIO` again.
    private func isDamaged(_ node: Node) -> Bool {
        do throws(Errno) {
            let opened = try volume.backing.open(node)
            defer { volume.storage.close(opened.descriptor) }
            let end = Int(opened.status.st_size) / volume.layout.pageBytes + 1
            try volume.withTemporaryPage { buffer throws(Errno) in
                var next = 0
                while case .page(let page) = try volume.nextPageWithData(
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
            volume.release(try volume.acquire(node, context).file, context)
            return false
        } catch {
            return error == .ioError
        }
    }
}
