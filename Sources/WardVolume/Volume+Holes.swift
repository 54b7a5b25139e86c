import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Holes: punching and zeroing. Everything here runs with the file's lock held for writing.
extension Volume {
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
        try storeZeroEdges(
            file, start..<min(end, layout.start(ofPage: firstWhole)),
            max(
                start, layout.start(ofPage: afterWhole))..<max(
                    end, layout.start(ofPage: afterWhole)),
            caller, context)
        // What follows needs no key: a lock may go ahead.
        settle(file)
        try makeSparse(file)
        if !file.mayPunch {
            // A hole reaches the disk with the journal, before data: by itself it would be a wiped page, or, behind the end
            // that the disk knows, a truncation, and no page around it needs to be young enough to excuse it. So the
            // header and the end go first: once, until the size changes.
            try syncData(file)
            file.mayPunch = true
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

    /// Zeros in the pages at both ends of a range. Both are sealed before one is stored, so that a lock comes before all of it
    /// or after. Each lies in one page; an empty one is no page.
    private func storeZeroEdges(
        _ file: OpenFile, _ first: Range<Int>, _ last: Range<Int>, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        if file.needsMending || first.isEmpty || last.isEmpty {
            if !first.isEmpty {
                try storeZeros(file, first.lowerBound, first.upperBound, caller, context)
            }
            if !last.isEmpty {
                try storeZeros(file, last.lowerBound, last.upperBound, caller, context)
            }
            if first.isEmpty, last.isEmpty {
                try enter(file, .allocate, caller, context)
                context.unlockContent()
            }
            return
        }
        let pageBytes = layout.pageBytes
        try settleKey(file, before: layout.page(at: last.lowerBound))
        let edges = [first, last].enumerated().map {
            (
                $0.element, layout.page(at: $0.element.lowerBound),
                context.sealed + $0.offset * pageBytes
            )
        }
        for (_, page, sealed) in edges {
            try readPage(file, page, to: sealed)
            try examine(file, page: page, sealed, .allocate, caller, context)
        }
        try enter(file, .allocate, caller, context)
        let epoch = sealingEpoch(file, beginWrite(context))
        defer { endWrite(context) }
        do throws(Errno) {
            context.usePlain(pageBytes)
            let plain = context.plain
            var nonce = context.freshNonce()
            for (bytes, page, sealed) in edges {
                try decode(file, page: page, sealed, to: plain, context)
                (plain + (bytes.lowerBound - layout.start(ofPage: page))).initializeMemory(
                    as: UInt8.self, repeating: 0, count: bytes.count)
                let (length, isLast) = expectation(file, page)
                try context.withCipher(
                    of: file, load: { () throws(Errno) in try loadKey(file, context) }
                ) {
                    cipher throws(Errno) in
                    seal(
                        plain, page: page, length: length, isFinal: isLast, epoch: epoch,
                        nonce: nonce, to: sealed + layout.recordOffset(ofPage: page), cipher)
                }
                if page == 0 {
                    sealed.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
                }
                nonce.0 &+= 1
            }
        } catch {
            context.unlockContent()
            throw error
        }
        // Ciphertext only from here on.
        context.unlockContent()
        settle(file)
        defer { noteChange(file, sizeChanged: false) }
        for (_, page, sealed) in edges {
            try storage.pwrite(file.descriptor, sealed, pageBytes, at: page * pageBytes)
        }
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
}
