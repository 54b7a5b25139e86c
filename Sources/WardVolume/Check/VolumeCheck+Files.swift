import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Examines files: the header, the attributes, every page.
extension VolumeCheck {
    /// Consecutive pages that differ from the format for the same reason.
    struct BadPage: Sendable {
        enum State: Sendable {
            /// The page does not authenticate: nothing in it can be read.
            case lost
            /// The page authenticates, or is zero, and does not belong in this place.
            case wrong
            /// The same, but an unclean end excuses it.
            case excused
        }

        var pages: Range<Int>
        var state: State
        var reason: String
        /// The bytes of the file that are gone.
        var bytes: Range<Int>

        /// Whether `next` continues this run: a file that is damaged from end to end is one run.
        func isContinued(by next: BadPage) -> Bool {
            pages.upperBound == next.pages.lowerBound && state == next.state
                && reason == next.reason && bytes.upperBound == next.bytes.lowerBound
        }
    }

    /// Pages that are read at once.
    private static let batch = 64

    func check(_ task: FileTask) {
        contexts.with { context in
            let node = volume.nodes.table.retain(inode: task.inode, type: S_IFREG)
            node.addLink(task.parent, task.stored)
            defer { volume.nodes.table.release(node, lookups: 1) }
            check(task, node, context)
        }
    }

    private func check(_ task: FileTask, _ node: Node, _ context: WorkerContext) {
        while true {
            do throws(Errno) {
                let file = try volume.acquire(node, context).file
                defer { volume.release(file, context) }
                guard let isNewborn = volume.isNewborn(file, shouldStop) else {
                    return note(unreachable: path(of: task), .wouldBlock)
                }
                if !isNewborn { checkOpen(file, task, context) }
                return
            } catch .ioError {
                if salvage(task, node, context) { return }
            } catch {
                if !isGone(error, task.inode, task.parent, task.stored) {
                    note(unreachable: path(of: task), error)
                }
                return
            }
        }
    }

    func path(of task: FileTask) -> String {
        if task.hasName {
            return volume.names.path(of: NodeLink(parent: task.parent, name: task.stored))
        }
        return place(task.parent, task.stored.dropLast().map { UInt8(bitPattern: $0) })
    }

    private func checkOpen(_ file: OpenFile, _ task: FileTask, _ context: WorkerContext) {
        tally.withLock { tally in
            tally.report.progress.files += 1
            if let header = file.header { tally.hints.insert(header.directoryID) }
        }
        let path = path(of: task)
        // Also for a file that was open before: after a failed sync, pages in memory may not be on
        // the disk.
        if volume.isInDoubt { volume.storage.forgetCached(file.descriptor) }
        guard checkHeader(file, task, path, context) else { return }
        if file.header == nil, file.syncState.isCutUnsynced {
            add(
                CheckFinding(
                    .unclean, path: path, protectionClass: file.protectionClass,
                    problem: "its first page never reached the disk: it is empty",
                    remedy: "cut to no bytes")
            ) { () throws(Errno) in
                try file.withWriteAccess { access throws(Errno) in try volume.settleCut(access) }
                return nil
            }
        }
        checkAttributes(
            of: file.node, file.descriptor, path: path, protectionClass: file.protectionClass
        ) {
            file.withReadLock { file.header?.fileID }
        }
        checkContent(file, task, path, context)
    }

    /// Compares the header on disk with the one in use, which changes only through the volume.
    /// False where a failed sync has brought back another first page: nothing can be said of the
    /// rest now.
    private func checkHeader(
        _ file: OpenFile, _ task: FileTask, _ path: String, _ context: WorkerContext
    ) -> Bool {
        var isSound = true
        var isOwn: Bool? = true
        file.withReadLock {
            guard !file.headerBytes.isEmpty else { return }
            isSound =
                (try? volume.withTemporaryPage { page throws(Errno) in
                    try volume.readPage(file, 0, to: page)
                    return file.headers.isOwnHeader(page)
                }) ?? true
            if !isSound { isOwn = try? opensFirstPage(file, context) }
        }
        if isSound { return true }
        guard isOwn == true else {
            add(
                CheckFinding(
                    .header, path: path, protectionClass: file.protectionClass,
                    problem: "its first page is not what was written while it is open",
                    remedy: "told when it is closed",
                    outcome: .left("close it, unlock, then check again")))
            return false
        }
        add(
            CheckFinding(
                .header, path: path, protectionClass: file.protectionClass,
                problem: "its header was changed while it is open",
                remedy: "written again as it was")
        ) { () throws(Errno) in
            return try file.withWriteAccess { access throws(Errno) in
                guard let header = file.header else { return nil }
                guard try opensFirstPage(file, context) else { throw .ioError }
                let kept = try quarantine.keep(
                    pages: [0..<1], of: file.descriptor, pageNote(task, file, "header"))
                try volume.replaceHeader(access, header, isProven: true)
                try volume.syncData(access)
                return kept
            }
        }
        return true
    }

    /// Whether the first page's record is the file's, without regard to its header. The file's lock
    /// is held.
    func opensFirstPage(
        _ file: OpenFile, _ context: WorkerContext
    ) throws(Errno) -> Bool {
        if file.sizeBytes == 0 { return true }
        return try judge(file, 0..<1, context).first?.state != .lost
    }

    func pageNote(_ task: FileTask, _ file: OpenFile, _ what: String) -> [String] {
        [
            "\(what): \(backingPath(task.parent, task.stored))",
            "class \(file.protectionClass.letter)",
        ]
    }

    // MARK: Content

    /// Reads every page and adds the findings.
    private func checkContent(
        _ file: OpenFile, _ task: FileTask, _ path: String, _ context: WorkerContext
    ) {
        let found: [BadPage]
        do throws(Errno) {
            found = try badPages(file, context)
        } catch .notPermitted {
            tally.withLock { $0.report.unread[file.protectionClass, default: 0] += 1 }
            return
        } catch .ioError where file.header != nil && !canUnwrap(file, context) {
            add(
                CheckFinding(
                    .header, path: path, protectionClass: file.protectionClass,
                    problem: "its key does not open with the volume's class keys",
                    remedy: "left as it is",
                    outcome: .left("it may open with another keybag of this volume")))
            return
        } catch .canceled {
            return
        } catch {
            note(unreachable: path, error)
            return
        }
        let excused = found.filter { $0.state == .excused }
        if !excused.isEmpty {
            add(
                finding(.unclean, excused, file, path, remedy: "written as it was accepted")
            ) { () throws(Errno) in
                guard volume.mendFile(file.node, context, shouldStop) else { throw .wouldBlock }
                try file.withWriteAccess { access throws(Errno) in try volume.syncData(access) }
                return nil
            }
        }
        let bad = found.filter { $0.state != .excused }
        if !bad.isEmpty {
            add(
                finding(
                    .content, bad, file, path,
                    remedy: bad.contains { !$0.bytes.isEmpty }
                        ? "these bytes become zeros, everything else is kept"
                        : "what is there is kept")
            ) { () throws(Errno) in
                try repair(file, bad, task, context)
            }
        }
    }

    func finding(
        _ kind: CheckFinding.Kind, _ pages: [BadPage], _ file: OpenFile, _ path: String,
        remedy: String
    ) -> CheckFinding {
        var ranges: [Range<Int>] = []
        for bad in pages where !bad.bytes.isEmpty {
            if let last = ranges.last, last.upperBound == bad.bytes.lowerBound {
                ranges[ranges.count - 1] = last.lowerBound..<bad.bytes.upperBound
            } else {
                ranges.append(bad.bytes)
            }
        }
        var reasons: [String] = []
        for bad in pages where !reasons.contains(bad.reason) && reasons.count < 4 {
            reasons.append(bad.reason)
        }
        return CheckFinding(
            kind, path: path, protectionClass: file.protectionClass, bytes: ranges,
            problem: reasons.joined(separator: "; "), remedy: remedy)
    }

    /// Whether the file key can be unwrapped. False means that the key is wrong, and not a page.
    func canUnwrap(_ file: OpenFile, _ context: WorkerContext) -> Bool {
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

    func badPages(_ file: OpenFile, _ context: WorkerContext) throws(Errno) -> [BadPage] {
        var found: [BadPage] = []
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
                if !skipped.isEmpty { add(wiped(file, skipped), to: &found) }
                let (page, pages) = (walk.page, walk.pages)
                guard page < pages else { return true }
                let count = min(VolumeCheck.batch, pages - page)
                for bad in try judge(file, page..<page + count, context) { add(bad, to: &found) }
                let bytes = count * volume.layout.pageBytes
                walk.looked(at: count, areZeros: volume.isZero(context.sealed, bytes))
                tally.withLock { $0.report.progress.bytes += bytes }
                return false
            }
            if isAtEnd { return found }
        }
    }

    private func add(_ bad: BadPage, to found: inout [BadPage]) {
        if let last = found.last, last.isContinued(by: bad) {
            found[found.count - 1].pages = last.pages.lowerBound..<bad.pages.upperBound
            found[found.count - 1].bytes = last.bytes.lowerBound..<bad.bytes.upperBound
        } else {
            found.append(bad)
        }
    }

    private func wiped(_ file: OpenFile, _ pages: Range<Int>) -> BadPage {
        let layout = volume.layout
        return BadPage(
            pages: pages, state: .wrong, reason: "wiped",
            bytes: layout.start(ofPage: pages.lowerBound)..<layout.start(ofPage: pages.upperBound))
    }

    /// The longest wiped run that a repair fills with zeros, pages.
    static let longestFilledHole = Volume.zeroPagesSearched

    /// Refuses longer runs: a program with access to the backing store may have made a small file
    /// many terabytes long.
    static func refuseToFill(_ bad: [BadPage]) throws(Errno) {
        if bad.contains(where: { $0.reason == "wiped" && $0.pages.count > longestFilledHole }) {
            throw .fileTooLarge
        }
    }

    /// Returns the faults of these pages. The file's lock is held. Throws `EPERM` where the class
    /// is locked.
    func judge(
        _ file: OpenFile, _ pages: Range<Int>, _ context: WorkerContext
    ) throws(Errno) -> [BadPage] {
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
            var found: [BadPage] = []
            for page in pages {
                let sealed = context.sealed + (page - pages.lowerBound) * pageBytes
                if let bad = try judge(file, page, sealed, content) { found.append(bad) }
            }
            return found
        }
    }

    /// Runs `body` with the content lock held. Throws `EPERM` where the file can't be read now, and
    /// reports no denial.
    func withContent<R>(
        of file: OpenFile, _ context: WorkerContext,
        _ body: (borrowing ContentAccess) throws(Errno) -> R
    ) throws(Errno) -> R {
        try context.withContent { content throws(Errno) in
            guard volume.isAdmitted(file) else { throw .notPermitted }
            return try body(content)
        }
    }

    func judge(
        _ file: OpenFile, _ page: Int, _ sealed: UnsafeRawPointer,
        _ content: borrowing ContentAccess
    ) throws(Errno) -> BadPage? {
        let context = content.context
        let layout = volume.layout
        let record = sealed + layout.recordOffset(ofPage: page)
        let prefix = RecordPrefix(reading: record)
        let (length, isLast) = volume.expectation(file, page)
        let start = layout.start(ofPage: page)
        let end = min(start + layout.capacity(ofPage: page), file.sizeBytes)
        let excused: BadPage.State = context.excuses.contain(page, of: file) ? .excused : .wrong
        if volume.isZero(record, layout.pageBytes - layout.recordOffset(ofPage: page)) {
            if page > 0, !isLast, file.header?.isSparse == true { return nil }
            return BadPage(
                pages: page..<page + 1, state: excused, reason: "wiped", bytes: start..<end)
        }
        let opens = try volume.withCipher(of: file, content) { cipher throws(Errno) in
            volume.open(record, page: page, to: context.plain, cipher)
        }
        guard opens, prefix.hasKnownFlags,
            Int(prefix.length) <= layout.capacity(ofPage: page)
        else {
            return BadPage(
                pages: page..<page + 1, state: .lost, reason: "does not authenticate",
                bytes: start..<end)
        }
        if prefix.epoch > volume.durability.epoch.load(ordering: .sequentiallyConsistent) {
            tally.withLock { $0.highestEpoch = max($0.highestEpoch, prefix.epoch) }
        }
        if Int(prefix.length) == length, prefix.isFinal == isLast { return nil }
        if isLast {
            return BadPage(
                pages: page..<page + 1, state: excused,
                reason: "cut off: what came after byte \(file.sizeBytes - 1) is gone",
                bytes: end..<end)
        }
        return BadPage(
            pages: page..<page + 1, state: excused, reason: "a page ends early",
            bytes: min(start + Int(prefix.length), end)..<end)
    }
}
