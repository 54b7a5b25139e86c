import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Changing content.
extension Volume {
    /// A change of at most this many pages reads all of them if it needs the first and the last.
    /// The 16 KiB that databases write touch five pages.
    static let pagesReadAtOnce = 8

    /// The origin of new bytes.
    enum Source {
        case data(UnsafeRawPointer)
        case zeros
    }

    /// Writes `count` bytes at `offset`. `count` is at most one transfer. The file grows as needed.
    func store(
        _ access: borrowing FileWriteAccess, _ source: Source, offset: Int, count: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        guard count > 0 else { return }
        guard file.isWritable else { throw .readOnlyFileSystem }
        if offset > file.sizeBytes {
            try storeBeyondEnd(
                access, source, offset: offset, count: count, operation, caller, context)
        } else {
            try rewrite(
                access, from: offset, to: offset + count, source: source,
                newSize: max(file.sizeBytes, offset + count), operation, caller, context)
        }
    }

    /// Extends the file to `offset`, then writes the bytes there. If the backing store fails or a
    /// lock comes between, the old last page is put back, so that the file ends as before. That
    /// needs no key.
    private func storeBeyondEnd(
        _ access: borrowing FileWriteAccess, _ source: Source, offset: Int, count: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        let oldSize = file.sizeBytes
        let oldLast = layout.pageCount(forSize: oldSize) - 1
        try withTemporaryPage { end throws(Errno) in
            if oldLast >= 0 { try readPage(file, oldLast, to: end) }
            try extend(access, to: offset, operation, caller, context)
            do throws(Errno) {
                try rewrite(
                    access, from: offset, to: offset + count, source: source,
                    newSize: offset + count, operation, caller, context)
            } catch {
                putBackEnd(access, end, oldLast, oldSize)
                throw error
            }
        }
    }

    /// Restores the old last page and size after a failed write beyond the end.
    private func putBackEnd(
        _ access: borrowing FileWriteAccess, _ end: UnsafeMutableRawPointer, _ oldLast: Int,
        _ oldSize: Int
    ) {
        let file = access.file
        let pageBytes = layout.pageBytes
        do throws(Errno) {
            guard oldLast >= 0 else { return try makeEmpty(access) }
            // The header may be marked sparse by now.
            if oldLast == 0 { end.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes) }
            try storage.pwrite(file.descriptor, end, pageBytes, at: oldLast * pageBytes)
            // Pages behind a FINAL page are not part of the file. If they can't be cut now, they
            // are cut before the next change.
            access.extent.endPutBack(sizeBytes: oldSize)
            noteChange(access)
            access.syncState.cutMade()
            try storage.ftruncate(file.descriptor, (oldLast + 1) * pageBytes)
            access.extent.cut()
        } catch {
            report(
                .note(
                    "\(path(of: file.node)): the end of the file could not be put back: \(error)"))
            noteHalfDone(file)
        }
    }

    /// Rewrites the pages that the bytes `start..<end` touch, so that these bytes come from
    /// `source` and the size becomes `newSize`. Also rewrites the old last page where it is no
    /// longer the last. `start` is at most the old size.
    func rewrite(
        _ access: borrowing FileWriteAccess, from start: Int, to end: Int, source: Source,
        newSize: Int, _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        let change = PageChange(of: file, bytes: start..<end, source, newSize: newSize, layout)
        if change.oldSize == 0 { try settleCut(access) }
        try settleKey(access, before: change.newLast)
        precondition(change.bytesOfPages <= WorkerContext.bufferBytes - 2 * 4096)
        // Old pages with needed bytes are read before the gate: a backing store that hangs must not
        // hold up a lock.
        let undo = try readOld(change, of: file, operation, caller, context)

        let before = file.headers.stored
        var isFirstHeader = false
        defer { if isFirstHeader { durability.unsynced.headers.end() } }
        let outer = durability.epochInUse(by: context)
        defer { durability.endWrite(context, backTo: outer) }
        // After this only ciphertext: a lock may proceed while the backing store is slow.
        let (mayStoreLater, epochNow) = try withContent(of: file, operation, caller, context) {
            content throws(Errno) in
            // The kernel writes a mapped page back because its class is closing.
            let mayStoreLater =
                operation == .writeBack && gate.classes.state(of: file.protectionClass) == .closing
            let epochNow = durability.beginWrite(context)
            isFirstHeader = before == nil
            if isFirstHeader { durability.unsynced.headers.begin() }
            do throws(Errno) {
                if before == nil || before!.header.wrappedKey.isEmpty {
                    try makeKey(access, content)
                }
                try seal(change, of: file, epoch: sealingEpoch(file, epochNow), content)
            } catch {
                restoreHeader(access, before)
                throw error
            }
            return (mayStoreLater, epochNow)
        }
        let sizeChanges = newSize != change.oldSize
        if mayStoreLater, !sizeChanges, !file.extent.needsMending {
            try storeLater(
                access, firstPage: change.first, count: change.count, context.sealed,
                epoch: epochNow)
            noteChange(access)
            return
        }
        settle(file)
        do throws(Errno) {
            if file.extent.tail != .none, sizeChanges { try removeHint(access) }
        } catch {
            // No page was written, and the end may not be durable: it must not be cut now.
            restoreHeader(access, before)
            throw error
        }
        do throws(Errno) {
            try storage.pwrite(
                file.descriptor, context.sealed, change.bytesOfPages,
                at: change.first * layout.pageBytes)
        } catch {
            undoWrite(access, change.undoPage, undo, before, change.oldSize)
            throw error
        }
        if change.newLast <= change.last { access.extent.endWritten(sizeBytes: newSize) }
        noteChange(access)
    }

    /// Reads the old pages that a change needs into the context's `sealed`, and examines them.
    /// Returns a copy of the old last page there, to be put back if the backing store fills up
    /// half-way.
    private func readOld(
        _ change: PageChange, of file: OpenFile, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> UnsafeMutableRawPointer {
        let pageBytes = layout.pageBytes
        let sealed = context.sealed
        let end = sealed + (change.count - 1) * pageBytes
        // Reading both ends in one call costs one wait for a disk instead of two. The pages between
        // may be unreadable, because they are overwritten: then each end is read by itself.
        let readsAll =
            change.needsFirst && change.needsLast && change.count <= Volume.pagesReadAtOnce
            && (try? readPages(file, change.first, count: change.count, to: sealed)) != nil
        if !readsAll {
            if change.needsFirst { try readPage(file, change.first, to: sealed) }
            if change.needsLast { try readPage(file, change.last, to: end) }
        }
        let undo = sealed + (WorkerContext.bufferBytes - 4096)
        if change.undoPage == change.first, change.needsFirst {
            undo.copyMemory(from: sealed, byteCount: pageBytes)
        } else if change.undoPage >= 0 {
            try readPage(file, change.undoPage, to: undo)
        }
        if change.needsFirst {
            try examine(file, page: change.first, sealed, operation, caller, context)
        }
        if change.needsLast {
            try examine(file, page: change.last, end, operation, caller, context)
        }
        return undo
    }

    /// Seals the pages of a change into the context's `sealed`, which has the old pages.
    private func seal(
        _ change: PageChange, of file: OpenFile, epoch: UInt32, _ content: borrowing ContentAccess
    ) throws(Errno) {
        let context = content.context
        content.usePlain(layout.pageBytes)
        var nonce = context.freshNonce()
        for page in change.first...change.last {
            let slot = context.sealed + (page - change.first) * layout.pageBytes
            let record = slot + layout.recordOffset(ofPage: page)
            let isFinal = page == change.newLast
            let length =
                isFinal
                ? change.newSize - layout.start(ofPage: page) : layout.capacity(ofPage: page)
            let payload = try payload(of: page, length, change, of: file, slot, content)
            try withSealingCipher(of: file, epoch: epoch, content) { cipher throws(Errno) in
                seal(
                    payload, page: page, length: length, isFinal: isFinal, epoch: epoch,
                    nonce: nonce, to: record, cipher)
            }
            if page == 0 {
                slot.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            }
            nonce.0 &+= 1
        }
    }

    /// Returns the new payload of a page, `length` bytes and zeros behind them. It is in the
    /// context's `plain`, or in the source if all of it is new.
    private func payload(
        of page: Int, _ length: Int, _ change: PageChange, of file: OpenFile,
        _ slot: UnsafeRawPointer, _ content: borrowing ContentAccess
    ) throws(Errno) -> UnsafeRawPointer {
        let plain = content.context.plain
        let start = layout.start(ofPage: page)
        let capacity = layout.capacity(ofPage: page)
        let from = max(change.bytes.lowerBound, start)
        let count = min(change.bytes.upperBound, start + capacity) - from
        let offset = from - change.bytes.lowerBound
        if count == capacity, case .data(let data) = change.source { return data + offset }
        if change.needsOld(page) {
            try decode(file, page: page, slot, to: plain, content)
        } else {
            plain.initializeMemory(as: UInt8.self, repeating: 0, count: capacity)
        }
        if count > 0 {
            let place = plain + (from - start)
            switch change.source {
            case .data(let data): place.copyMemory(from: data + offset, byteCount: count)
            case .zeros: place.initializeMemory(as: UInt8.self, repeating: 0, count: count)
            }
        }
        if length < capacity {
            (plain + length).initializeMemory(
                as: UInt8.self, repeating: 0, count: capacity - length)
        }
        return UnsafeRawPointer(plain)
    }

    /// Puts back the end, header and size of a file after a failed write, as far as possible.
    /// Anything else is noted as half-done.
    func undoWrite(
        _ access: borrowing FileWriteAccess, _ undoPage: Int, _ undo: UnsafeMutableRawPointer,
        _ before: StoredHeader?, _ oldSize: Int
    ) {
        let file = access.file
        let pageBytes = layout.pageBytes
        access.extent.writeFailed()
        if oldSize == 0 {
            restoreHeader(access, before)
            if let header = file.header {
                // The file had a keyless header. Its page may have been overwritten.
                access.headers.put(
                    storedHeader(header, file.headers.stored?.format ?? keys.format))
                do throws(Errno) {
                    try writeKeylessPage(access)
                } catch {
                    noteHalfDone(file)
                }
            } else {
                do throws(Errno) {
                    try storage.ftruncate(file.descriptor, 0)
                    access.extent.cut()
                } catch {
                    access.extent.cutFailed()
                    noteHalfDone(file)
                }
            }
        } else if undoPage >= 0 {
            do throws(Errno) {
                try storage.pwrite(file.descriptor, undo, pageBytes, at: undoPage * pageBytes)
                access.syncState.cutMade()
                try storage.ftruncate(file.descriptor, (undoPage + 1) * pageBytes)
                access.extent.cut()
            } catch {
                access.extent.endTorn()
                access.extent.cutFailed()
                report(
                    .note(
                        "\(path(of: file.node)): the end of the file could not be put back: \(error)"
                    ))
                noteHalfDone(file)
            }
        }
        noteChange(access)
    }

    func restoreHeader(
        _ access: borrowing FileWriteAccess, _ before: StoredHeader?
    ) {
        let file = access.file
        if file.header != before?.header {
            access.headers.put(before)
            file.key.forget()
        }
    }

    func readPage(
        _ file: OpenFile, _ page: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) { try readPages(file, page, count: 1, to: buffer) }

    /// Reads whole pages. Bytes beyond the end of the backing file read as zeros. The caller holds
    /// the file's lock.
    func readPages(
        _ file: OpenFile, _ page: Int, count: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) {
        // The pending pages come first: a page that is stored between the two reads has the same
        // content.
        let later =
            file.pendingPages.areNone
            ? [] : pending.latest(of: file, page..<page + count)
        let total = count * layout.pageBytes
        let got = try storage.pread(file.descriptor, buffer, total, at: page * layout.pageBytes)
        if got < total {
            (buffer + got).initializeMemory(as: UInt8.self, repeating: 0, count: total - got)
        }
        for found in later {
            (buffer + (found.page - page) * layout.pageBytes).copyMemory(
                from: found.bytes, byteCount: layout.pageBytes)
        }
    }
}

/// A change of bytes, and the pages that it rewrites.
private struct PageChange {
    /// The bytes that come from `source`.
    let bytes: Range<Int>
    let source: Volume.Source
    let oldSize: Int
    let newSize: Int
    /// The pages that are written.
    let first: Int
    let last: Int
    /// The last page of the file, before and after; -1: none.
    let oldLast: Int
    let newLast: Int
    private let layout: PageLayout

    init(
        of file: OpenFile, bytes: Range<Int>, _ source: Volume.Source, newSize: Int,
        _ layout: PageLayout
    ) {
        self.bytes = bytes
        self.source = source
        self.newSize = newSize
        self.layout = layout
        oldSize = file.sizeBytes
        oldLast = layout.pageCount(forSize: oldSize) - 1
        newLast = layout.pageCount(forSize: newSize) - 1
        last = layout.page(at: bytes.upperBound - 1)
        let start = layout.page(at: bytes.lowerBound)
        let needsOldLast = newLast > oldLast || file.extent.needsMending
        first = oldLast >= 0 && needsOldLast ? min(start, oldLast) : start
    }

    var count: Int { last - first + 1 }
    var bytesOfPages: Int { count * layout.pageBytes }
    var needsFirst: Bool { needsOld(first) }
    var needsLast: Bool { last != first && needsOld(last) }

    /// Whether old bytes of this page stay.
    func needsOld(_ page: Int) -> Bool {
        guard page <= oldLast else { return false }
        let start = layout.start(ofPage: page)
        let valid = min(oldSize - start, layout.capacity(ofPage: page))
        return bytes.lowerBound > start || bytes.upperBound < start + valid
    }

    /// The old last page, where it is among those that a growth rewrites; -1: none.
    var undoPage: Int {
        newSize > oldSize && (first...last).contains(oldLast) ? oldLast : -1
    }
}
