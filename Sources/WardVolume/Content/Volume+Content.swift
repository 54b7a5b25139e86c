import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Changing content. Everything here, in `Volume+Size.swift` and in `Volume+Holes.swift` runs with
// the file's lock held for writing.
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
        _ file: OpenFile, _ source: Source, offset: Int, count: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard count > 0 else { return }
        guard file.isWritable else { throw .readOnlyFileSystem }
        if offset > file.sizeBytes {
            try storeBeyondEnd(
                file, source, offset: offset, count: count, operation, caller, context)
        } else {
            try rewrite(
                file, from: offset, to: offset + count, source: source,
                newSize: max(file.sizeBytes, offset + count), operation, caller, context)
        }
    }

    /// Extends the file to `offset`, then writes the bytes there. If the backing store fails or a
    /// lock comes between, the old last page is put back, so that the file ends as before. That
    /// needs no key.
    private func storeBeyondEnd(
        _ file: OpenFile, _ source: Source, offset: Int, count: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let oldSize = file.sizeBytes
        let oldLast = layout.pageCount(forSize: oldSize) - 1
        try withTemporaryPage { end throws(Errno) in
            if oldLast >= 0 { try readPage(file, oldLast, to: end) }
            try extend(file, to: offset, operation, caller, context)
            do throws(Errno) {
                try rewrite(
                    file, from: offset, to: offset + count, source: source,
                    newSize: offset + count, operation, caller, context)
            } catch {
                putBackEnd(file, end, oldLast, oldSize)
                throw error
            }
        }
    }

    /// Restores the old last page and size after a failed write beyond the end.
    private func putBackEnd(
        _ file: OpenFile, _ end: UnsafeMutableRawPointer, _ oldLast: Int, _ oldSize: Int
    ) {
        let pageBytes = layout.pageBytes
        do throws(Errno) {
            guard oldLast >= 0 else { return try makeEmpty(file) }
            // The header may be marked sparse by now.
            if oldLast == 0 { end.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes) }
            try storage.pwrite(file.descriptor, end, pageBytes, at: oldLast * pageBytes)
            // Pages behind a FINAL page are not part of the file. If they can't be cut now, they
            // are cut before the next change.
            file.extent.endPutBack(sizeBytes: oldSize)
            noteChange(file)
            file.syncState.cutMade()
            try storage.ftruncate(file.descriptor, (oldLast + 1) * pageBytes)
            file.extent.cut()
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
        _ file: OpenFile, from start: Int, to end: Int, source: Source, newSize: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let oldSize = file.sizeBytes
        if oldSize == 0 { try settleCut(file) }
        let oldLast = layout.pageCount(forSize: oldSize) - 1
        let newLast = layout.pageCount(forSize: newSize) - 1
        try settleKey(file, before: newLast)
        var first = layout.page(at: start)
        let last = layout.page(at: end - 1)
        if oldLast >= 0, newLast > oldLast || file.extent.needsMending {
            first = min(first, oldLast)
        }
        let pageBytes = layout.pageBytes
        let count = last - first + 1
        precondition(count * pageBytes <= WorkerContext.bufferBytes - 2 * 4096)

        // Old pages with needed bytes are read before the gate: a backing store that hangs must not
        // hold up a lock.
        func needsOld(_ page: Int) -> Bool {
            guard page <= oldLast else { return false }
            let pageStart = layout.start(ofPage: page)
            let valid = min(oldSize - pageStart, layout.capacity(ofPage: page))
            return start > pageStart || end < pageStart + valid
        }
        let sealed = context.sealed
        let readsFirst = needsOld(first)
        let readsLast = last != first && needsOld(last)
        // Reading both ends in one call costs one wait for a disk instead of two. The pages between
        // may be unreadable, because they are overwritten: then each end is read by itself.
        let readsAll =
            readsFirst && readsLast && count <= Volume.pagesReadAtOnce
            && (try? readPages(file, first, count: count, to: sealed)) != nil
        if !readsAll {
            if readsFirst { try readPages(file, first, count: 1, to: sealed) }
            if readsLast {
                try readPages(file, last, count: 1, to: sealed + (count - 1) * pageBytes)
            }
        }
        // A copy of the old last page, to be put back if the backing store fills up half-way.
        let undo = sealed + (WorkerContext.bufferBytes - 4096)
        let undoPage = oldLast >= first && oldLast <= last && newSize > oldSize ? oldLast : -1
        if undoPage == first, readsFirst {
            undo.copyMemory(from: sealed, byteCount: pageBytes)
        } else if undoPage >= 0 {
            try readPages(file, undoPage, count: 1, to: undo)
        }

        if readsFirst { try examine(file, page: first, sealed, operation, caller, context) }
        if readsLast {
            try examine(
                file, page: last, sealed + (count - 1) * pageBytes, operation, caller, context)
        }

        try enter(file, operation, caller, context)
        // The kernel writes a mapped page back because its class is closing.
        let mayStoreLater =
            operation == .writeBack && gate.classes.state(of: file.protectionClass) == .closing
        let before = file.headers.stored
        let epochNow = durability.beginWrite(context)
        let sealingEpoch = sealingEpoch(file, epochNow)
        let isFirstHeader = file.header == nil
        if isFirstHeader { durability.unsynced.headers.begin() }
        defer { if isFirstHeader { durability.unsynced.headers.end() } }
        do throws(Errno) {
            if file.header == nil || file.header!.wrappedKey.isEmpty { try makeKey(file) }
            let plain = context.plain
            context.usePlain(pageBytes)
            var nonce = context.freshNonce()
            for page in first...last {
                let slot = sealed + (page - first) * pageBytes
                let record = slot + layout.recordOffset(ofPage: page)
                let pageStart = layout.start(ofPage: page)
                let capacity = layout.capacity(ofPage: page)
                let from = max(start, pageStart)
                let until = min(end, pageStart + capacity)
                let length = page == newLast ? newSize - pageStart : capacity
                var payload = UnsafeRawPointer(plain)
                if from == pageStart, until == pageStart + capacity, case .data(let data) = source {
                    payload = data + (from - start)
                } else {
                    if page == first ? readsFirst : page == last && readsLast {
                        try decode(file, page: page, slot, to: plain, context)
                    } else {
                        plain.initializeMemory(as: UInt8.self, repeating: 0, count: capacity)
                    }
                    if from < until {
                        switch source {
                        case .data(let data):
                            (plain + (from - pageStart)).copyMemory(
                                from: data + (from - start), byteCount: until - from)
                        case .zeros:
                            (plain + (from - pageStart)).initializeMemory(
                                as: UInt8.self, repeating: 0, count: until - from)
                        }
                    }
                    if length < capacity {
                        (plain + length).initializeMemory(
                            as: UInt8.self, repeating: 0, count: capacity - length)
                    }
                }
                try context.withCipher(
                    of: file, load: { () throws(Errno) in try loadKey(file, context) }
                ) {
                    cipher throws(Errno) in
                    seal(
                        payload, page: page, length: length, isFinal: page == newLast,
                        epoch: sealingEpoch, nonce: nonce, to: record, cipher)
                }
                if page == 0 {
                    slot.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
                }
                nonce.0 &+= 1
            }
        } catch {
            restoreHeader(file, before)
            durability.endWrite(context)
            context.unlockContent()
            throw error
        }
        // Only ciphertext from here on: a lock may proceed while the backing store is slow.
        context.unlockContent()
        defer { durability.endWrite(context) }
        if mayStoreLater, newSize == oldSize, !file.extent.needsMending {
            try storeLater(file, firstPage: first, count: count, sealed, epoch: epochNow)
            noteChange(file)
            return
        }
        settle(file)
        do throws(Errno) {
            if file.extent.tail != .none, newSize != oldSize { try removeHint(file) }
            try storage.pwrite(file.descriptor, sealed, count * pageBytes, at: first * pageBytes)
        } catch {
            undoWrite(file, undoPage, undo, before, oldSize)
            throw error
        }
        if newLast <= last { file.extent.endWritten(sizeBytes: newSize) }
        noteChange(file)
    }

    /// Puts back the end, header and size of a file after a failed write, as far as possible.
    /// Anything else is noted as half-done.
    func undoWrite(
        _ file: OpenFile, _ undoPage: Int, _ undo: UnsafeMutableRawPointer,
        _ before: StoredHeader?, _ oldSize: Int
    ) {
        let pageBytes = layout.pageBytes
        file.extent.writeFailed()
        if oldSize == 0 {
            restoreHeader(file, before)
            if let header = file.header {
                // The file had a keyless header. Its page may have been overwritten.
                file.headers.put(storedHeader(header))
                do throws(Errno) {
                    try writeKeylessPage(file)
                } catch {
                    noteHalfDone(file)
                }
            } else {
                do throws(Errno) {
                    try storage.ftruncate(file.descriptor, 0)
                    file.extent.cut()
                } catch {
                    file.extent.cutFailed()
                    noteHalfDone(file)
                }
            }
        } else if undoPage >= 0 {
            do throws(Errno) {
                try storage.pwrite(file.descriptor, undo, pageBytes, at: undoPage * pageBytes)
                file.syncState.cutMade()
                try storage.ftruncate(file.descriptor, (undoPage + 1) * pageBytes)
                file.extent.cut()
            } catch {
                file.extent.endTorn()
                file.extent.cutFailed()
                report(
                    .note(
                        "\(path(of: file.node)): the end of the file could not be put back: \(error)"
                    ))
                noteHalfDone(file)
            }
        }
        noteChange(file)
    }

    func restoreHeader(
        _ file: OpenFile, _ before: StoredHeader?
    ) {
        if file.header != before?.header {
            file.headers.put(before)
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
