import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// Repairs open files for a check: pages, the header, the end.
///
/// Concurrency: any thread, with its own context; all properties are constant.
package struct PageRepair: Sendable {
    private let volume: Volume
    private let examiner: PageExaminer

    /// `examiner` judges each page again before it is replaced.
    package init(_ volume: Volume, _ examiner: PageExaminer) {
        self.volume = volume
        self.examiner = examiner
    }

    /// The longest wiped run that a repair fills with zeros, pages.
    private static let longestFilledHole = Volume.zeroPagesSearched

    /// Throws `EFBIG` where a repair would fill a longer run. A program with access to the backing
    /// store may have made a small file many terabytes long.
    package static func refuseToFill(_ faults: [PageFault]) throws(Errno) {
        if faults.contains(where: { $0.isWiped && $0.pages.count > longestFilledHole }) {
            throw .fileTooLarge
        }
    }

    /// Makes pages of an open file readable again, with their content or with zeros, and syncs.
    ///
    /// The file's lock is not held: a write-back at a lock may need it. Each page is judged again
    /// before it is replaced, and left if a program has written it meanwhile.
    package func repair(
        _ faults: [PageFault], of file: OpenFile, _ context: WorkerContext
    ) throws(Errno) {
        for fault in faults { for page in fault.pages { try repair(file, page, context) } }
        try file.withWriteAccess { access throws(Errno) in try volume.syncData(access) }
        if file.node.cachedPages.exist.load(ordering: .relaxed) {
            volume.kernel?.invalidateContent(of: file.node.id)
        }
    }

    /// Makes a file readable that `FileSalvage` opened, durably. `headerIsBad`: writes its header,
    /// too. The file's lock is not held.
    package func repair(
        _ faults: [PageFault], ofSalvaged file: OpenFile, headerIsBad: Bool,
        _ context: WorkerContext
    ) throws(Errno) {
        if headerIsBad, let header = file.header {
            try file.withWriteAccess { access throws(Errno) in
                try volume.replaceHeader(access, header, isProven: true)
            }
        }
        for fault in faults { for page in fault.pages { try repair(file, page, context) } }
        try file.withWriteAccess { access throws(Errno) in
            // The end must be durable before pages behind it go.
            try volume.storage.fsync(file.descriptor)
            try volume.removeHint(access)
            volume.putHint(access)
            try volume.storage.fsync(file.descriptor)
        }
    }

    /// Writes pages that only a doubt excuses anew, and syncs. The file's lock is not held. Throws
    /// `EAGAIN` where the file can't be mended now.
    package func mend(
        _ file: OpenFile, _ context: WorkerContext, shouldStop: @escaping () -> Bool
    ) throws(Errno) {
        guard volume.mendFile(file.node, context, shouldStop) else { throw .wouldBlock }
        try file.withWriteAccess { access throws(Errno) in try volume.syncData(access) }
    }

    /// Repairs one page. Judges it again under the lock: a program may have written it meanwhile.
    private func repair(
        _ file: OpenFile, _ page: Int, _ context: WorkerContext
    ) throws(Errno) {
        let layout = volume.layout
        try file.withWriteAccess { access throws(Errno) in
            defer { context.excuses.forget() }
            guard page < layout.pageCount(forSize: file.sizeBytes),
                let fault = try examiner.judge(file, page..<page + 1, context).first
            else { return }
            let start = layout.start(ofPage: page)
            let (length, _) = volume.expectation(file, page)
            guard fault.state != .lost else {
                return try volume.store(
                    access, .zeros, offset: start, count: length, .mend, Caller.volume, context)
            }
            try volume.readPage(file, page, to: context.sealed)
            context.excuses.note(page, of: file)
            try volume.withPlainCopy(of: file, page: page, length: length, context) {
                copy throws(Errno) in
                try volume.store(
                    access, .data(copy), offset: start, count: length, .mend,
                    Caller.volume, context)
            }
        }
    }

    /// Writes a header again as it was, and syncs. Calls `keep` before, with the file's lock held.
    /// Returns nil where the file has no header any more. Throws `EIO` where it has another first
    /// page.
    package func restoreHeader<R>(
        of file: OpenFile, _ context: WorkerContext, keep: () throws(Errno) -> R
    ) throws(Errno) -> R? {
        try file.withWriteAccess { access throws(Errno) -> R? in
            guard let header = file.header else { return nil }
            guard try examiner.opensFirstPage(file, context) else { throw .ioError }
            let kept = try keep()
            try volume.replaceHeader(access, header, isProven: true)
            try volume.syncData(access)
            return kept
        }
    }

    /// Makes the cut of a file durable that `PageExaminer.lacksFirstPage` tells of. Takes the
    /// file's lock.
    package func settleCut(of file: OpenFile) throws(Errno) {
        try file.withWriteAccess { access throws(Errno) in try volume.settleCut(access) }
    }
}
