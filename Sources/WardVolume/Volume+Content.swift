import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Changing content: writes, growing and shrinking, holes. Everything here runs with the file's lock held for writing.
extension Volume {
    /// Where new bytes come from.
    enum Source {
        case data(UnsafeRawPointer)
        case zeros
    }

    /// Writes `count` bytes at `offset`, at most a transfer; the file grows as needed.
    func store(
        _ file: OpenFile, _ source: Source, offset: Int, count: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard count > 0 else { return }
        guard file.isWritable else { throw .readOnlyFileSystem }
        let sizeBefore = file.sizeBytes
        if offset > sizeBefore { try extend(file, to: offset, operation, caller, context) }
        let oldSize = file.sizeBytes
        let newSize = max(oldSize, offset + count)
        do throws(Errno) {
            try rewrite(
                file, from: offset, to: offset + count, source: source, newSize: newSize,
                operation, caller, context)
        } catch {
            // A write that fails leaves the file as long as it was.
            if offset > sizeBefore {
                try? setSize(file, to: sizeBefore, operation, caller, context)
            }
            throw error
        }
    }

    /// Rewrites the pages that the bytes `start..<end` touch (and the old last page, where it is the last no more) so
    /// that those bytes come from `source`, and the size becomes `newSize`. `start` is at most the old size.
    private func rewrite(
        _ file: OpenFile, from start: Int, to end: Int, source: Source, newSize: Int,
        _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let oldSize = file.sizeBytes
        let oldLast = layout.pageCount(forSize: oldSize) - 1
        let newLast = layout.pageCount(forSize: newSize) - 1
        var first = layout.page(at: start)
        let last = layout.page(at: end - 1)
        if oldLast >= 0, newLast > oldLast || file.needsMending { first = min(first, oldLast) }
        let pageBytes = layout.pageBytes
        let count = last - first + 1
        precondition(count * pageBytes <= WorkerContext.bufferBytes - 2 * 4096)

        // Old pages whose bytes are needed, read before the gate: a hanging store must not hold up a lock.
        func needsOld(_ page: Int) -> Bool {
            guard page <= oldLast else { return false }
            let pageStart = layout.start(ofPage: page)
            let valid = min(oldSize - pageStart, layout.capacity(ofPage: page))
            return start > pageStart || end < pageStart + valid
        }
        let sealed = context.sealed
        let readsFirst = needsOld(first)
        let readsLast = last != first && needsOld(last)
        if readsFirst, readsLast, count == 2 {
            try readPages(file, first, count: 2, to: sealed)
        } else {
            if readsFirst { try readPages(file, first, count: 1, to: sealed) }
            if readsLast {
                try readPages(file, last, count: 1, to: sealed + (count - 1) * pageBytes)
            }
        }
        // The old last page as it is, to be put back where the store fills up half-way.
        let undo = sealed + (WorkerContext.bufferBytes - 4096)
        let undoPage = oldLast >= first && oldLast <= last && newSize > oldSize ? oldLast : -1
        if undoPage == first, readsFirst {
            undo.copyMemory(from: sealed, byteCount: pageBytes)
        } else if undoPage >= 0 {
            try readPages(file, undoPage, count: 1, to: undo)
        }

        try enter(file, operation, caller, context)
        let before = (header: file.header, headerBytes: file.headerBytes)
        let epochNow = beginWrite(context)
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
                try context.withCipher(of: file, load: { () throws(Errno) in try loadKey(file) }) {
                    cipher throws(Errno) in
                    seal(
                        payload, page: page, length: length, isFinal: page == newLast,
                        epoch: epochNow, nonce: nonce, to: record, cipher)
                }
                if page == 0 {
                    slot.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
                }
                nonce.0 &+= 1
            }
        } catch {
            restoreHeader(file, before)
            endWrite(context)
            context.unlockContent()
            throw error
        }
        // Ciphertext only from here on: a lock may go ahead while the store takes its time.
        context.unlockContent()
        defer { endWrite(context) }
        do throws(Errno) {
            if file.hasHint, newSize != oldSize { try removeHint(file) }
            try storage.pwrite(file.descriptor, sealed, count * pageBytes, at: first * pageBytes)
        } catch {
            undoWrite(file, undoPage, undo, before, oldSize)
            throw error
        }
        file.sizeBytes = newSize
        if newLast <= last { file.needsMending = false }
        noteChange(file, sizeChanged: newSize != oldSize)
    }

    private func undoWrite(
        _ file: OpenFile, _ undoPage: Int, _ undo: UnsafeMutableRawPointer,
        _ before: (header: FileHeader?, headerBytes: [UInt8]), _ oldSize: Int
    ) {
        let pageBytes = layout.pageBytes
        var hasTail = file.hasHint
        if oldSize == 0 {
            restoreHeader(file, before)
            if let header = file.header {
                // The keyless header that was there: its page may have been overwritten.
                file.headerBytes = headerBytes(header)
                try? writeKeylessPage(file)
                hasTail = file.hasHint
            } else {
                hasTail = (try? storage.ftruncate(file.descriptor, 0)) == nil
            }
        } else if undoPage >= 0 {
            do throws(Errno) {
                try storage.pwrite(file.descriptor, undo, pageBytes, at: undoPage * pageBytes)
                try storage.ftruncate(file.descriptor, (undoPage + 1) * pageBytes)
                hasTail = false
            } catch {
                file.needsMending = true
                hasTail = true
                report(
                    .note(
                        "\(path(of: file.node)): the end of the file could not be put back: \(error)"
                    ))
            }
        }
        noteChange(file, sizeChanged: true)
        file.hasHint = hasTail
    }

    private func restoreHeader(
        _ file: OpenFile, _ before: (header: FileHeader?, headerBytes: [UInt8])
    ) {
        if file.header != before.header {
            file.header = before.header
            file.headerBytes = before.headerBytes
            file.forgetKey()
        }
    }

    func readPage(
        _ file: OpenFile, _ page: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) { try readPages(file, page, count: 1, to: buffer) }

    /// Reads whole pages; what lies beyond the end of the backing file reads as zeros.
    func readPages(
        _ file: OpenFile, _ page: Int, count: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) {
        let total = count * layout.pageBytes
        let got = try storage.pread(file.descriptor, buffer, total, at: page * layout.pageBytes)
        if got < total {
            (buffer + got).initializeMemory(as: UInt8.self, repeating: 0, count: total - got)
        }
    }

    // MARK: Header

    /// A fresh file key and the header that carries it; on disk with the page that is about to be written.
    private func makeKey(_ file: OpenFile) throws(Errno) {
        let key = try SecretBytes(random: 32)
        let wrapped: [UInt8]
        do throws(KeyringError) {
            wrapped = try keyring.wrap(key, for: file.protectionClass)
        } catch {
            throw error == .unavailable ? .notPermitted : .noMemory
        }
        var header =
            file.header
            ?? FileHeader(
                protectionClass: file.protectionClass, fileID: SystemRandom.bytes(16),
                directoryID: file.directoryID)
        header.protectionClass = file.protectionClass
        header.wrappedKey = wrapped
        header.isSparse = false
        file.header = header
        file.headerBytes = headerBytes(header)
        file.setKey(key)
        file.node.protectionClass = file.protectionClass
    }

    func headerBytes(_ header: FileHeader) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: FileHeader.bytes) { out, count in
            header.write(to: out.baseAddress!, macKey: keys.headers)
            count = FileHeader.bytes
        }
    }

    /// A header without a key for an empty file: its class and ID from now on. Not synced. What is in a header is no
    /// content: only where the file was emptied just now its times move.
    func makeKeylessHeader(
        _ file: OpenFile, _ protectionClass: ProtectionClass, keepsTimes: Bool = true
    ) throws(Errno) {
        precondition(file.sizeBytes == 0)
        guard file.isWritable else { throw .readOnlyFileSystem }
        let before = keepsTimes ? try storage.fstat(file.descriptor) : nil
        let old = (header: file.header, headerBytes: file.headerBytes)
        file.header = FileHeader(
            protectionClass: protectionClass,
            fileID: old.header?.fileID ?? SystemRandom.bytes(16),
            directoryID: old.header?.directoryID ?? file.directoryID)
        file.headerBytes = headerBytes(file.header!)
        do throws(Errno) {
            try writeKeylessPage(file)
        } catch {
            file.header = old.header
            file.headerBytes = old.headerBytes
            throw error
        }
        file.forgetKey()
        file.protectionClass = protectionClass
        file.node.protectionClass = protectionClass
        if let before {
            try storage.setTimes(
                file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                modification: before.st_mtim)
        }
    }

    /// Page 0 with the header and an empty record, and nothing after it.
    private func writeKeylessPage(_ file: OpenFile) throws(Errno) {
        try withTemporaryPage { page throws(Errno) in
            page.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            // First the page, which alone makes the file empty whatever follows it; then the rest goes, with the next
            // change where it can't go now.
            try storage.pwrite(file.descriptor, page, layout.pageBytes, at: 0)
            file.hasHint = (try? storage.ftruncate(file.descriptor, layout.pageBytes)) == nil
        }
        isDirty.store(true, ordering: .relaxed)
    }

    /// Writes page 0 again with another header, its record as it is. The file has data.
    func replaceHeader(_ file: OpenFile, _ header: FileHeader) throws(Errno) {
        guard file.isWritable else { throw .readOnlyFileSystem }
        let bytes = headerBytes(header)
        try withTemporaryPage { page throws(Errno) in
            try readPage(file, 0, to: page)
            page.copyMemory(from: bytes, byteCount: FileHeader.bytes)
            try storage.pwrite(file.descriptor, page, layout.pageBytes, at: 0)
        }
        file.header = header
        file.headerBytes = bytes
        isDirty.store(true, ordering: .relaxed)
    }

    private func makeSparse(_ file: OpenFile) throws(Errno) {
        guard var header = file.header, !header.isSparse else { return }
        header.isSparse = true
        try replaceHeader(file, header)
    }

    // MARK: Size

    /// Sets the size: ftruncate.
    func setSize(
        _ file: OpenFile, to newSize: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard file.isWritable else { throw .readOnlyFileSystem }
        guard newSize <= PageLayout.maximumSizeBytes else { throw .fileTooLarge }
        let oldSize = file.sizeBytes
        if newSize > oldSize {
            try extend(file, to: newSize, operation, caller, context)
        } else {
            try enter(file, operation, caller, context)
            context.unlockContent()
            if newSize == 0 {
                try makeEmpty(file)
            } else if newSize < oldSize {
                try shrink(file, to: newSize, operation, caller, context)
            } else {
                try touch(file)
            }
        }
    }

    /// Truncating to the size that it has sets the times all the same, ftruncate(2).
    private func touch(_ file: OpenFile) throws(Errno) {
        try storage.setTimes(
            file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
            modification: timespec(tv_sec: 0, tv_nsec: ward_utime_now()))
        file.timesWereShown = false
    }

    private func makeEmpty(_ file: OpenFile) throws(Errno) {
        if file.sizeBytes == 0 {
            if file.header == nil { try storage.ftruncate(file.descriptor, 0) }
            try touch(file)
            return
        }
        if try keepsHeader(file) {
            let protectionClass = file.protectionClass
            let size = file.sizeBytes
            file.sizeBytes = 0
            do throws(Errno) {
                try makeKeylessHeader(file, protectionClass, keepsTimes: false)
            } catch {
                file.sizeBytes = size
                throw error
            }
        } else {
            try storage.ftruncate(file.descriptor, 0)
            file.hasHint = false
            file.header = nil
            file.headerBytes = []
            file.forgetKey()
        }
        let hasTail = file.hasHint
        file.sizeBytes = 0
        file.needsMending = false
        noteChange(file, sizeChanged: true)
        file.hasHint = hasTail
    }

    /// Whether an empty file has to keep its header: its class is not its directory's, it has attributes (they are bound
    /// to its ID), or it has several names.
    private func keepsHeader(_ file: OpenFile) throws(Errno) -> Bool {
        guard let link = file.node.link else { return true }
        if try directoryState(of: link.parent).protectionClass != file.protectionClass {
            return true
        }
        if try storage.fstat(file.descriptor).st_nlink > 1 { return true }
        let size =
            (try? storage.listxattr(
                file.descriptor, UnsafeMutableRawBufferPointer(start: nil, count: 0))) ?? 1
        return size > 0
    }

    private func shrink(
        _ file: OpenFile, to newSize: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let oldPages = layout.pageCount(forSize: file.sizeBytes)
        let newLast = layout.pageCount(forSize: newSize) - 1
        let pageBytes = layout.pageBytes
        try readPage(file, newLast, to: context.sealed)
        try enter(file, operation, caller, context)
        let epochNow = beginWrite(context)
        defer { endWrite(context) }
        let length = newSize - layout.start(ofPage: newLast)
        let capacity = layout.capacity(ofPage: newLast)
        do throws(Errno) {
            context.usePlain(pageBytes)
            try decode(file, page: newLast, context.sealed, to: context.plain, context)
            (context.plain + length).initializeMemory(
                as: UInt8.self, repeating: 0, count: capacity - length)
            let nonce = context.freshNonce()
            try context.withCipher(of: file, load: { () throws(Errno) in try loadKey(file) }) {
                cipher throws(Errno) in
                seal(
                    context.plain, page: newLast, length: length, isFinal: true, epoch: epochNow,
                    nonce: nonce, to: context.sealed + layout.recordOffset(ofPage: newLast), cipher)
            }
            if newLast == 0 {
                context.sealed.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            }
        } catch {
            context.unlockContent()
            throw error
        }
        context.unlockContent()
        if file.hasHint { try removeHint(file) }
        try storage.pwrite(file.descriptor, context.sealed, pageBytes, at: newLast * pageBytes)
        // What follows a FINAL page is not the file's any more, cut or not: the size is what that page says.
        file.sizeBytes = newSize
        file.needsMending = false
        noteChange(file, sizeChanged: true)
        if oldPages > newLast + 1 {
            // The new end must be durable before the old one goes: a power cut in between would look like a truncation.
            do throws(Errno) {
                try storage.fdatasync(file.descriptor)
                try storage.ftruncate(file.descriptor, (newLast + 1) * pageBytes)
            } catch {
                // Old pages must not come back in a file that grows: they go before the next change of the size.
                file.hasHint = true
                throw error
            }
        }
    }

    /// Grows the file with zeros: a real last page, holes in between.
    func extend(
        _ file: OpenFile, to newSize: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard file.isWritable else { throw .readOnlyFileSystem }
        guard newSize <= PageLayout.maximumSizeBytes else { throw .fileTooLarge }
        let newLast = layout.pageCount(forSize: newSize) - 1
        if file.sizeBytes == 0, newLast > 0 {
            // Page 0 carries the header and is never a hole.
            try rewrite(
                file, from: 0, to: layout.firstCapacity, source: .zeros,
                newSize: layout.firstCapacity, operation, caller, context)
            do throws(Errno) {
                try extend(file, to: newSize, operation, caller, context)
            } catch {
                // What failed adds nothing.
                try? makeEmpty(file)
                throw error
            }
            return
        }
        let oldSize = file.sizeBytes
        let oldLast = layout.pageCount(forSize: oldSize) - 1
        if newLast <= oldLast + 1 {
            try rewrite(
                file, from: oldSize, to: newSize, source: .zeros, newSize: newSize, operation,
                caller, context)
            return
        }
        try enter(file, operation, caller, context)
        context.unlockContent()
        try makeSparse(file)
        // The new last page first, beyond the end; then the old one loses its mark and grows to its full length.
        let pageBytes = layout.pageBytes
        let sealed = context.sealed
        try readPage(file, oldLast, to: sealed)
        try enter(file, operation, caller, context)
        let epochNow = beginWrite(context)
        defer { endWrite(context) }
        do throws(Errno) {
            context.usePlain(2 * pageBytes)
            try decode(file, page: oldLast, sealed, to: context.plain, context)
            let zeros = context.plain + pageBytes
            zeros.initializeMemory(as: UInt8.self, repeating: 0, count: pageBytes)
            var nonce = context.freshNonce()
            try context.withCipher(of: file, load: { () throws(Errno) in try loadKey(file) }) {
                cipher throws(Errno) in
                seal(
                    context.plain, page: oldLast, length: layout.capacity(ofPage: oldLast),
                    isFinal: false, epoch: epochNow, nonce: nonce,
                    to: sealed + layout.recordOffset(ofPage: oldLast), cipher)
                nonce.0 &+= 1
                seal(
                    zeros, page: newLast, length: newSize - layout.start(ofPage: newLast),
                    isFinal: true, epoch: epochNow, nonce: nonce, to: sealed + pageBytes, cipher)
            }
            if oldLast == 0 {
                sealed.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            }
        } catch {
            context.unlockContent()
            throw error
        }
        context.unlockContent()
        if file.hasHint { try removeHint(file) }
        do throws(Errno) {
            try storage.pwrite(
                file.descriptor, sealed + pageBytes, pageBytes, at: newLast * pageBytes)
        } catch {
            file.hasHint =
                (try? storage.ftruncate(file.descriptor, (oldLast + 1) * pageBytes)) == nil
            throw error
        }
        do throws(Errno) {
            try storage.pwrite(file.descriptor, sealed, pageBytes, at: oldLast * pageBytes)
        } catch {
            file.hasHint =
                (try? storage.ftruncate(file.descriptor, (oldLast + 1) * pageBytes)) == nil
            file.needsMending = true
            throw error
        }
        file.sizeBytes = newSize
        file.needsMending = false
        noteChange(file, sizeChanged: true)
    }

    // MARK: Holes

    /// Makes `start..<end` (inside the file) read as zeros; whole pages in between become holes.
    func zero(
        _ file: OpenFile, from start: Int, to end: Int, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let end = min(end, file.sizeBytes)
        guard start < end else { return }
        let lastPage = layout.pageCount(forSize: file.sizeBytes) - 1
        var firstWhole = layout.page(at: start)
        if start > layout.start(ofPage: firstWhole) || firstWhole == 0 { firstWhole += 1 }
        // The last page stays real: it carries the size.
        let afterWhole = min(
            end >= layout.start(ofPage: lastPage) ? lastPage : layout.page(at: end), lastPage)
        guard firstWhole < afterWhole else {
            try storeZeros(file, start, end, caller, context)
            return
        }
        try storeZeros(file, start, min(end, layout.start(ofPage: firstWhole)), caller, context)
        try storeZeros(file, max(start, layout.start(ofPage: afterWhole)), end, caller, context)
        try enter(file, .allocate, caller, context)
        context.unlockContent()
        if file.header?.isSparse == false {
            try makeSparse(file)
            // Once for a file: a hole on disk before its header says so would be taken for a wiped page, and no page
            // around it needs to be young enough to excuse it.
            try storage.fdatasync(file.descriptor)
        }
        do throws(Errno) {
            try storage.fallocate(
                file.descriptor, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                offsetBytes: firstWhole * layout.pageBytes,
                lengthBytes: (afterWhole - firstWhole) * layout.pageBytes)
        } catch .notSupported {
            try storeZeros(
                file, layout.start(ofPage: firstWhole), layout.start(ofPage: afterWhole), caller,
                context)
        }
        noteChange(file, sizeChanged: false)
    }

    private func storeZeros(
        _ file: OpenFile, _ start: Int, _ end: Int, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        var at = start
        while at < end {
            let count = min(end - at, 1 << 18)
            try store(file, .zeros, offset: at, count: count, .allocate, caller, context)
            at += count
        }
    }

    // MARK: Bookkeeping

    /// Announces the epoch that the pages of this request will carry; a durable point waits for `endWrite`.
    func beginWrite(_ context: WorkerContext) -> UInt32 {
        while true {
            let now = epoch.load(ordering: .sequentiallyConsistent)
            context.epochInUse.store(now, ordering: .sequentiallyConsistent)
            if epoch.load(ordering: .sequentiallyConsistent) == now { return now }
        }
    }

    @inline(__always)
    func endWrite(_ context: WorkerContext) { context.epochInUse.store(0, ordering: .releasing) }

    func noteChange(_ file: OpenFile, sizeChanged: Bool) {
        file.lastChange = SystemClock.coarseNanoseconds()
        file.timesWereShown = false
        file.isUnsynced = true
        if sizeChanged {
            file.hasHint = false
            file.needsHint = true
        }
        isDirty.store(true, ordering: .relaxed)
    }

    /// Takes the size hint, or what else is behind the last page, off before the size changes.
    private func removeHint(_ file: OpenFile) throws(Errno) {
        let pages = max(layout.pageCount(forSize: file.sizeBytes), file.header == nil ? 0 : 1)
        try storage.ftruncate(file.descriptor, pages * layout.pageBytes)
        file.hasHint = false
        file.needsHint = true
    }

    /// Puts the size hint back, so that a `stat` of the closed file reads nothing. Its own change of the file's times
    /// is taken back where somebody could notice.
    func putHint(_ file: OpenFile) {
        guard file.needsHint, file.isWritable, !file.needsMending else { return }
        file.needsHint = false
        let size = layout.backingSize(forSize: file.sizeBytes)
        guard size > 0 else {
            if file.hasHint { try? removeHint(file) }
            file.needsHint = false
            return
        }
        let age = SystemClock.coarseNanoseconds() &- file.lastChange
        do throws(Errno) {
            if file.timesWereShown || age > 8_000_000 {
                let status = try storage.fstat(file.descriptor)
                try storage.ftruncate(file.descriptor, size)
                try storage.setTimes(
                    file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                    modification: status.st_mtim)
            } else {
                try storage.ftruncate(file.descriptor, size)
            }
            file.hasHint = true
        } catch {
            // A missing hint costs a page read at the next `stat`, nothing more.
            file.hasHint = false
        }
    }
}
