import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Holes: punching and zeroing.
extension Volume {
    /// Makes `start..<end` (inside the file) read as zeros. Whole pages in between become holes.
    func zero(
        _ access: borrowing FileWriteAccess, from start: Int, to end: Int, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        let end = min(end, file.sizeBytes)
        guard start < end else { return }
        guard file.isWritable else { throw .readOnlyFileSystem }
        let lastPage = layout.pageCount(forSize: file.sizeBytes) - 1
        var firstWhole = layout.page(at: start)
        if start > layout.start(ofPage: firstWhole) || firstWhole == 0 { firstWhole += 1 }
        // The last page stays real: it carries the size.
        let afterWhole = min(
            end >= layout.start(ofPage: lastPage) ? lastPage : layout.page(at: end), lastPage)
        guard firstWhole < afterWhole else {
            try storeZeros(access, start, end, caller, context)
            return
        }
        let edges = [
            start..<min(end, layout.start(ofPage: firstWhole)),
            max(
                start, layout.start(ofPage: afterWhole))..<max(
                    end, layout.start(ofPage: afterWhole)),
        ]
        var isPunched = true
        try storeZeros(access, edges: edges.filter { !$0.isEmpty }, caller, context) {
            () throws(Errno) in
            do throws(Errno) {
                try storage.fallocate(
                    file.descriptor, mode: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    offsetBytes: firstWhole * layout.pageBytes,
                    lengthBytes: (afterWhole - firstWhole) * layout.pageBytes)
            } catch .notSupported {
                isPunched = false
            }
        }
        // The backing store has no holes: write the zeros page by page.
        if !isPunched {
            do throws(Errno) {
                // A length whose last page does not authenticate is not trustworthy, and may be
                // endless.
                if afterWhole - firstWhole > Volume.zeroPagesSearched,
                    try authenticatedEpoch(file, lastPage, .allocate, caller, context) == nil
                {
                    throw .ioError
                }
                try storeZeros(
                    access, layout.start(ofPage: firstWhole), layout.start(ofPage: afterWhole),
                    caller, context)
            } catch {
                // Some zeros are stored, and the kernel still caches the old content: it drops that
                // only after a success.
                if let kernel {
                    let node = file.node
                    background.add { kernel.invalidateContent(of: node.id) }
                }
                throw error
            }
        }
        noteChange(access)
    }

    /// Writes zeros into the pages at both ends of a range and calls `body` for what lies between.
    ///
    /// All pages are sealed before any is stored, so that a lock comes before all of it or after.
    /// If the backing store fails half-way, the old pages are put back. Each range of `edges` lies
    /// in one page, no two in the same. `body` must not use the context's buffers.
    private func storeZeros(
        _ access: borrowing FileWriteAccess, edges: [Range<Int>], _ caller: Caller,
        _ context: WorkerContext,
        andBetween body: () throws(Errno) -> Void
    ) throws(Errno) {
        let file = access.file
        if file.extent.needsMending {
            for edge in edges {
                try storeZeros(access, edge.lowerBound, edge.upperBound, caller, context)
            }
            try askGate(file, .allocate, caller, context)
            try prepareHole(access)
            return try body()
        }
        settle(file)
        let pageBytes = layout.pageBytes
        let pages = edges.map { layout.page(at: $0.lowerBound) }
        let sealed = context.sealed
        let old = sealed + pages.count * pageBytes
        for (index, page) in pages.enumerated() {
            try readPage(file, page, to: sealed + index * pageBytes)
            try examine(
                file, page: page, sealed + index * pageBytes, .allocate, caller, context)
        }
        old.copyMemory(from: sealed, byteCount: pages.count * pageBytes)
        let outer = durability.epochInUse(by: context)
        defer { durability.endWrite(context, backTo: outer) }
        // Only ciphertext after this: a lock may proceed.
        try withContent(of: file, .allocate, caller, context) { content throws(Errno) in
            let epoch = sealingEpoch(file, durability.beginWrite(context))
            content.usePlain(pageBytes)
            let plain = context.plain
            var nonce = context.freshNonce()
            for (index, page) in pages.enumerated() {
                let slot = sealed + index * pageBytes
                try decode(file, page: page, slot, to: plain, content)
                (plain + (edges[index].lowerBound - layout.start(ofPage: page))).initializeMemory(
                    as: UInt8.self, repeating: 0, count: edges[index].count)
                let (length, isLast) = expectation(file, page)
                try withSealingCipher(of: file, epoch: epoch, content) { cipher throws(Errno) in
                    seal(
                        plain, page: page, length: length, isFinal: isLast, epoch: epoch,
                        nonce: nonce, to: slot + layout.recordOffset(ofPage: page), cipher)
                }
                nonce.0 &+= 1
            }
        }
        // Only after the edges were read while the file was not yet sparse: then a wiped page is no
        // hole.
        try prepareHole(access)
        for (index, page) in pages.enumerated() where page == 0 {
            for slot in [sealed, old] {
                (slot + index * pageBytes).copyMemory(
                    from: file.headerBytes, byteCount: FileHeader.bytes)
            }
        }
        defer { noteChange(access) }
        do throws(Errno) {
            for (index, page) in pages.enumerated() {
                try storage.pwrite(
                    file.descriptor, sealed + index * pageBytes, pageBytes, at: page * pageBytes)
            }
            try body()
        } catch {
            putBack(access, pages, old)
            throw error
        }
    }

    /// Stores the old ciphertext `old` of `pages` again, one page after the other.
    private func putBack(
        _ access: borrowing FileWriteAccess, _ pages: [Int], _ old: UnsafeMutableRawPointer
    ) {
        let file = access.file
        for (index, page) in pages.enumerated() {
            do throws(Errno) {
                try storage.pwrite(
                    file.descriptor, old + index * layout.pageBytes, layout.pageBytes,
                    at: page * layout.pageBytes)
            } catch {
                noteHalfDone(file)
            }
        }
    }

    /// Makes the sparse header and the file's end durable before a hole is punched, once for each
    /// size.
    ///
    /// A hole reaches the disk with the journal, before data. Alone it would look like a wiped page
    /// or, behind the end that the disk knows, like a truncation. The pages around it may be too
    /// old to excuse it.
    private func prepareHole(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        settle(file)
        try makeSparse(access)
        guard !file.extent.isReadyForHoles else { return }
        try syncData(access)
        access.extent.preparedForHoles()
    }

    private func storeZeros(
        _ access: borrowing FileWriteAccess, _ start: Int, _ end: Int, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        var at = start
        while at < end {
            let count = min(end - at, 1 << 18)
            try store(access, .zeros, offset: at, count: count, .allocate, caller, context)
            at += count
        }
    }
}
