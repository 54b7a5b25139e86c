import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// Judges the pages of open files for a check. Reports neither denials nor damage.
///
/// Concurrency: any thread, with its own context. The one field that changes is atomic.
package final class PageExaminer: Sendable {
    private let volume: Volume
    private let shouldStop: @Sendable () -> Bool
    private let highest = Atomic<UInt32>(0)

    /// Pages that are read at once.
    private static let batch = 64

    /// `shouldStop` ends long calls; any thread calls it.
    package init(_ volume: Volume, shouldStop: @escaping @Sendable () -> Bool) {
        self.volume = volume
        self.shouldStop = shouldStop
    }

    /// The highest epoch of a page that the volume had not reached; 0: there was none.
    package var highestEpoch: UInt32 { highest.load(ordering: .relaxed) }

    // MARK: Judging

    /// Reads every page of a file and returns the faults. Takes the file's lock, and lets go of it
    /// every few pages. `onRead` gets the number of bytes that were read.
    ///
    /// Throws `EPERM` where the file's class is locked, `ECANCELED` where `shouldStop` says so.
    package func faults(
        of file: OpenFile, _ context: WorkerContext, onRead: (_ bytes: Int) -> Void
    ) throws(Errno) -> [PageFault] {
        var found: [PageFault] = []
        var walk = PageWalk(volume, file)
        while true {
            if shouldStop() { throw .canceled }
            let isAtEnd = try file.withReadLock { () throws(Errno) in
                // Such pages are not read: there may be no end to them.
                let skipped = try walk.skip { last throws(Errno) in
                    // Checked here first, because `authenticatedEpoch` reports a denial.
                    try withContent(of: file, context) { _ in }
                    return try volume.authenticatedEpoch(
                        file, last, .mend, Caller.volume, context) != nil
                }
                if !skipped.isEmpty { PageFault.add(wiped(skipped), to: &found) }
                let (page, pages) = (walk.page, walk.pages)
                guard page < pages else { return true }
                let count = min(PageExaminer.batch, pages - page)
                for fault in try judge(file, page..<page + count, context) {
                    PageFault.add(fault, to: &found)
                }
                let bytes = count * volume.layout.pageBytes
                walk.looked(at: count, areZeros: volume.isZero(context.sealed, bytes))
                onRead(bytes)
                return false
            }
            if isAtEnd { return found }
        }
    }

    private func wiped(_ pages: Range<Int>) -> PageFault {
        let layout = volume.layout
        return PageFault(
            pages, .wrong, PageFault.wiped,
            bytes: layout.start(ofPage: pages.lowerBound)..<layout.start(ofPage: pages.upperBound))
    }

    /// Whether the file key can be unwrapped. False means that the key is wrong, and not a page.
    package func keyOpens(_ file: OpenFile, _ context: WorkerContext) -> Bool {
        context.withContent { _ in
            guard volume.isAdmitted(file) else { return true }
            do throws(Errno) {
                try file.key.withKey(
                    load: { () throws(Errno) in try volume.loadKey(file, context) }, { _ in })
                return true
            } catch {
                return error != .ioError
            }
        }
    }

    /// Returns the faults of these pages. The file's lock is held. Throws `EPERM` where the class
    /// is locked.
    func judge(
        _ file: OpenFile, _ pages: Range<Int>, _ context: WorkerContext
    ) throws(Errno) -> [PageFault] {
        // Checked here first, because `examine` reports a denial.
        try withContent(of: file, context) { _ in }
        let pageBytes = volume.layout.pageBytes
        try volume.readPages(file, pages.lowerBound, count: pages.count, to: context.sealed)
        defer { context.excuses.forget() }
        if volume.isInDoubt {
            for page in pages {
                try volume.examine(
                    file, page: page, context.sealed + (page - pages.lowerBound) * pageBytes,
                    .mend, Caller.volume, context)
            }
        }
        return try withContent(of: file, context) { content throws(Errno) in
            content.usePlain(pageBytes)
            var found: [PageFault] = []
            for page in pages {
                let sealed = context.sealed + (page - pages.lowerBound) * pageBytes
                if let fault = try judge(file, page, sealed, content) { found.append(fault) }
            }
            return found
        }
    }

    /// Runs `body` with the content lock held. Throws `EPERM` where the file can't be read now, and
    /// reports no denial.
    private func withContent<R>(
        of file: OpenFile, _ context: WorkerContext,
        _ body: (borrowing ContentAccess) throws(Errno) -> R
    ) throws(Errno) -> R {
        try context.withContent { content throws(Errno) in
            guard volume.isAdmitted(file) else { throw .notPermitted }
            return try body(content)
        }
    }

    private func judge(
        _ file: OpenFile, _ page: Int, _ sealed: UnsafeRawPointer,
        _ content: borrowing ContentAccess
    ) throws(Errno) -> PageFault? {
        let context = content.context
        let layout = volume.layout
        let record = sealed + layout.recordOffset(ofPage: page)
        let prefix = RecordPrefix(reading: record)
        let (length, isLast) = volume.expectation(file, page)
        let start = layout.start(ofPage: page)
        let end = min(start + layout.capacity(ofPage: page), file.sizeBytes)
        let excused: PageFault.State = context.excuses.contain(page, of: file) ? .excused : .wrong
        if volume.isZero(record, layout.pageBytes - layout.recordOffset(ofPage: page)) {
            if page > 0, !isLast, file.header?.isSparse == true { return nil }
            return PageFault(page..<page + 1, excused, PageFault.wiped, bytes: start..<end)
        }
        let opens = try volume.open(
            record, page: page, of: file, to: context.plain, content)
        guard opens, Int(prefix.length) <= layout.capacity(ofPage: page)
        else {
            return PageFault(page..<page + 1, .lost, "does not authenticate", bytes: start..<end)
        }
        if prefix.epoch > volume.epoch { highest.max(prefix.epoch, ordering: .relaxed) }
        if Int(prefix.length) == length, prefix.isFinal == isLast { return nil }
        if isLast {
            return PageFault(
                page..<page + 1, excused,
                "cut off: what came after byte \(file.sizeBytes - 1) is gone", bytes: end..<end)
        }
        return PageFault(
            page..<page + 1, excused, "a page ends early",
            bytes: min(start + Int(prefix.length), end)..<end)
    }

    // MARK: The first page

    /// The bytes that lie in the backing store in the place of an open file's header.
    package enum HeaderOnDisk: Sendable {
        /// The header as the file wrote it, or nothing can be said.
        case own
        /// Another header, on the file's own first page.
        case changed
        /// Another first page, which a failed sync may have brought back.
        case anotherPage
    }

    /// Compares the header on disk with the one in use, which changes only through the volume.
    /// Takes the file's lock.
    package func headerOnDisk(of file: OpenFile, _ context: WorkerContext) -> HeaderOnDisk {
        file.withReadLock {
            guard !file.headerBytes.isEmpty else { return .own }
            let isSound =
                (try? volume.withTemporaryPage { page throws(Errno) in
                    try volume.readPage(file, 0, to: page)
                    return file.headers.isOwnHeader(page)
                }) ?? true
            if isSound { return .own }
            return (try? opensFirstPage(file, context)) == true ? .changed : .anotherPage
        }
    }

    /// Whether the first page's record is the file's, without regard to its header. The file's lock
    /// is held.
    func opensFirstPage(
        _ file: OpenFile, _ context: WorkerContext
    ) throws(Errno) -> Bool {
        if file.sizeBytes == 0 { return true }
        return try judge(file, 0..<1, context).first?.state != .lost
    }

    /// Whether the file is empty because its first page never reached the disk.
    package func lacksFirstPage(_ file: OpenFile) -> Bool {
        file.header == nil && file.syncState.isCutUnsynced
    }
}
