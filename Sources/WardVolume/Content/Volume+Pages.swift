import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Sealing and opening pages, and judging pages that are not as the format wants.
extension Volume {
    /// Operations on content, as far as the gate distinguishes them.
    enum ContentOperation: String {
        case open, read, write, truncate, allocate, seek, create, link, stat, mend
        case writeBack, setClass

        /// Whether the operation adds content to the file, or takes it away.
        var changesContent: Bool {
            switch self {
            case .write, .truncate, .allocate, .writeBack: true
            case .open, .read, .seek, .create, .link, .stat, .mend, .setClass: false
            }
        }
    }

    /// Runs `body` with the content lock held and the gate asked. Throws `EPERM` if the gate
    /// refuses.
    @inline(__always)
    func withContent<R>(
        of file: OpenFile, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext, _ body: (borrowing ContentAccess) throws(Errno) -> R
    ) throws(Errno) -> R {
        let access = try enter(file, operation, caller, context)
        defer { context.unlockContent() }
        return try body(access)
    }

    /// Throws `EPERM` if the gate refuses the operation now.
    func askGate(
        _ file: OpenFile, _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) { try withContent(of: file, operation, caller, context) { _ in } }

    /// Takes the content lock and asks the gate. The access lasts until the context's content lock
    /// is released: `read` needs it until its reply was sent. Throws `EPERM`, with the lock
    /// released, if the gate refuses; `EIO` for a change of a file whose class nothing vouches for.
    func enter(
        _ file: OpenFile, _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> ContentAccess {
        if operation.changesContent, !file.notes.seal.value.admitsChanges {
            try requireSeal(of: file)
        }
        let access = context.lockContent()
        if isAdmitted(file, operation) { return access }
        context.unlockContent()
        throw denied(file.node, file.protectionClass, operation, caller)
    }

    /// Runs `body` with the cipher for sealing pages of a file in an epoch. The file's key is
    /// unwrapped where it is not in memory.
    @inline(__always)
    func withSealingCipher<R>(
        of file: OpenFile, epoch: UInt32, _ content: borrowing ContentAccess,
        _ body: (borrowing AEADContext) throws(Errno) -> R
    ) throws(Errno) -> R {
        try withCipher(
            of: file, keys.format == .version1 ? .fileKey : .epoch(epoch), content, body)
    }

    @inline(__always)
    private func withCipher<R>(
        of file: OpenFile, _ use: PageKeyUse, _ content: borrowing ContentAccess,
        _ body: (borrowing AEADContext) throws(Errno) -> R
    ) throws(Errno) -> R {
        try content.withCipher(
            of: file, use, load: { () throws(Errno) in try loadKey(file, content.context) }, body)
    }

    /// Whether the gate admits the operation. The answer is valid only while the content lock is
    /// held.
    @inline(__always)
    func isAdmitted(_ file: OpenFile, _ operation: ContentOperation = .read) -> Bool {
        switch gate.classes.state(of: file.protectionClass) {
        case .open: true
        case .closing: operation == .writeBack
        case .openFilesOnly: file.hasKey || file.sizeBytes == 0
        case .closed: false
        }
    }

    func denied(
        _ node: Node?, _ protectionClass: ProtectionClass, _ operation: ContentOperation,
        _ caller: Caller
    ) -> Errno {
        report(
            .denied(
                path: node.map { path(of: $0) } ?? "?", protectionClass: protectionClass,
                operation: operation.rawValue, caller: caller))
        return .notPermitted
    }

    /// Unwraps a file's key from its header. `context`: its content lock is held; nil on threads
    /// without one.
    func loadKey(_ file: OpenFile, _ context: WorkerContext?) throws(Errno) -> SecretBytes {
        guard let header = file.header, !header.wrappedKey.isEmpty else {
            // This can't happen: a file with pages has a key. If it does, one file must not end the
            // mount.
            reportFailure(of: file, "pages without a key", context)
            throw .ioError
        }
        do throws(KeyringError) {
            var key: SecretBytes?
            let stored = file.headers.stored
            try header.wrappedKey.withUnsafeBytesTyped { bytes throws(KeyringError) in
                key = try gate.keyring.unwrap(
                    bytes, for: header.protectionClass, capsule: stored?.capsule,
                    format: stored?.format ?? keys.format)
            }
            return key.take()!
        } catch .unavailable {
            throw .notPermitted
        } catch .outOfLockedMemory {
            throw .noMemory
        } catch {
            reportFailure(of: file, reasonForNoKey(file, header), context)
            throw .ioError
        }
    }

    /// The reason for a file key that does not unwrap.
    private func reasonForNoKey(_ file: OpenFile, _ header: FileHeader) -> String {
        guard header.capsuleID != Capsule.noID, file.headers.stored?.capsule == nil else {
            return "the file key does not unwrap"
        }
        let name = "\(Capsule.directoryName)/\(Capsule.fileName(header.capsuleID))"
        return "its capsule \(name) is missing or damaged"
    }

    /// Reports damage once the content lock is released: reading the path may wait for the backing
    /// store.
    private func reportFailure(of file: OpenFile, _ reason: String, _ context: WorkerContext?) {
        reportLater(context) { [self] in
            .integrityFailure(path: path(of: file.node), reason: reason)
        }
    }

    private func reportLater(
        _ context: WorkerContext?, _ event: @escaping @Sendable () -> VolumeEvent
    ) {
        if let context {
            context.afterContent { [self] in report(event()) }
        } else {
            background.add { [self] in report(event()) }
        }
    }

    // MARK: Sealing

    /// Seals the payload at `plain` (a full capacity of bytes) as page `page` into `record`.
    @inline(__always)
    func seal(
        _ plain: UnsafeRawPointer, page: Int, length: Int, isFinal: Bool, epoch: UInt32,
        nonce: (UInt64, UInt32), to record: UnsafeMutableRawPointer,
        _ cipher: borrowing AEADContext
    ) {
        record.storeBytes(of: nonce.0, as: UInt64.self)
        record.storeBytes(of: nonce.1, toByteOffset: 8, as: UInt32.self)
        let prefix = RecordPrefix(
            epoch: epoch, length: length, isFinal: isFinal, format: keys.format)
        prefix.write(to: record)
        let capacity = layout.capacity(ofPage: page)
        var associated = (UInt64(page).littleEndian, UInt64(0))
        associated.1 = record.loadUnaligned(fromByteOffset: 12, as: UInt64.self)
        withUnsafeBytes(of: &associated) {
            cipher.seal(
                plain, count: capacity, to: record + PageLayout.recordPrefixBytes,
                tag: record + PageLayout.recordPrefixBytes + capacity, nonce: record,
                associatedData: $0.baseAddress, associatedDataBytes: 16)
        }
    }

    /// Opens the record of page `page` of a file. Returns false if it does not authenticate, or has
    /// flags that the volume's format does not know.
    @inline(__always)
    func open(
        _ record: UnsafeRawPointer, page: Int, of file: OpenFile,
        to plain: UnsafeMutableRawPointer, _ content: borrowing ContentAccess
    ) throws(Errno) -> Bool {
        let prefix = RecordPrefix(reading: record)
        guard prefix.hasKnownFlags(keys.format) else { return false }
        return try withCipher(of: file, PageKeyUse(prefix), content) { cipher throws(Errno) in
            open(record, page: page, to: plain, cipher)
        }
    }

    @inline(__always)
    private func open(
        _ record: UnsafeRawPointer, page: Int, to plain: UnsafeMutableRawPointer,
        _ cipher: borrowing AEADContext
    ) -> Bool {
        let capacity = layout.capacity(ofPage: page)
        var associated = (UInt64(page).littleEndian, UInt64(0))
        associated.1 = record.loadUnaligned(fromByteOffset: 12, as: UInt64.self)
        return withUnsafeBytes(of: &associated) {
            cipher.open(
                record + PageLayout.recordPrefixBytes, count: capacity, to: plain,
                tag: record + PageLayout.recordPrefixBytes + capacity, nonce: record,
                associatedData: $0.baseAddress, associatedDataBytes: 16)
        }
    }

    /// Whether a page holds only zeros: a hole, or wiped.
    @inline(__always)
    func isZero(_ page: UnsafeRawPointer, _ count: Int) -> Bool {
        // Nearly every page differs in its first word.
        if page.loadUnaligned(as: UInt64.self) != 0 { return false }
        return memcmp(page, page + 8, count - 8) == 0
    }

    // MARK: Opening what was read

    /// The format's requirement for a page: a payload of `length` bytes, and FINAL on the last
    /// page.
    @inline(__always)
    func expectation(
        _ file: OpenFile, _ page: Int
    ) -> (length: Int, isLast: Bool) {
        let isLast = page == layout.pageCount(forSize: file.sizeBytes) - 1
        return (
            isLast ? file.sizeBytes - layout.start(ofPage: page) : layout.capacity(ofPage: page),
            isLast
        )
    }

    /// Decrypts page `page` from `sealed` (a whole page) to `plain`, with zeros after the page's
    /// length.
    ///
    /// Throws `EIO`, for this page only, if the page is not as the format wants and no doubt
    /// excuses it. `examine` was called before.
    @inline(__always)
    func decode(
        _ file: OpenFile, page: Int, _ sealed: UnsafeRawPointer, to plain: UnsafeMutableRawPointer,
        _ content: borrowing ContentAccess
    ) throws(Errno) {
        let record = sealed + layout.recordOffset(ofPage: page)
        let prefix = RecordPrefix(reading: record)
        let (length, isLast) = expectation(file, page)
        if Int(prefix.length) == length, prefix.isFinal == isLast,
            try open(record, page: page, of: file, to: plain, content)
        {
            return
        }
        try decodeUnexpected(file, page: page, sealed, to: plain, content)
    }

    /// Runs `body` with a copy of a page's plaintext, which is wiped afterwards. `body` writes the
    /// page anew, by the way of all writes. The page is in the context's `sealed`, and the file's
    /// lock is held. Throws the errors of `withContent` and `decode`, and those of `body`.
    func withPlainCopy<R>(
        of file: OpenFile, page: Int, length: Int, _ context: WorkerContext,
        _ body: (UnsafeRawPointer) throws(Errno) -> R
    ) throws(Errno) -> R {
        try withUnsafeTemporaryAllocation(byteCount: length, alignment: 16) {
            copy throws(Errno) in
            let copy = copy.baseAddress!
            defer { explicit_bzero(copy, length) }
            try withContent(of: file, .mend, Caller.volume, context) { content throws(Errno) in
                content.usePlain(layout.pageBytes)
                try decode(file, page: page, context.sealed, to: context.plain, content)
                copy.copyMemory(from: context.plain, byteCount: length)
            }
            return try body(copy)
        }
    }

    /// Decrypts a page that is a hole, or judges it as a finding.
    private func decodeUnexpected(
        _ file: OpenFile, page: Int, _ sealed: UnsafeRawPointer,
        to plain: UnsafeMutableRawPointer, _ content: borrowing ContentAccess
    ) throws(Errno) {
        let context = content.context
        let capacity = layout.capacity(ofPage: page)
        let record = sealed + layout.recordOffset(ofPage: page)
        let lastPage = layout.pageCount(forSize: file.sizeBytes) - 1
        if isZero(record, layout.pageBytes - layout.recordOffset(ofPage: page)) {
            plain.initializeMemory(as: UInt8.self, repeating: 0, count: capacity)
            if page != 0, page != lastPage, file.header?.isSparse == true { return }
            try judge(file, page, "page \(page) is zero", context)
            return
        }
        let ok = try open(record, page: page, of: file, to: plain, content)
        let prefix = RecordPrefix(reading: record)
        guard ok, Int(prefix.length) <= capacity else {
            reportFailure(of: file, "page \(page) does not authenticate", context)
            throw .ioError
        }
        let length = Int(prefix.length)
        (plain + length).initializeMemory(as: UInt8.self, repeating: 0, count: capacity - length)
        if page == lastPage {
            if file.extent.needsMending { return }
            try judge(file, page, "the file ends without its last page", context)
        } else {
            try judge(file, page, "page \(page) ends early", context)
        }
    }

    /// Accepts a finding and reports it if a doubtful epoch excuses it. Throws `EIO` otherwise.
    private func judge(
        _ file: OpenFile, _ page: Int, _ finding: String, _ context: WorkerContext
    ) throws(Errno) {
        guard context.excuses.contain(page, of: file) else {
            reportFailure(of: file, finding, context)
            throw .ioError
        }
        reportLater(context) { [self] in .healed(path: path(of: file.node), finding: finding) }
    }

    // MARK: Doubt

    /// Finds out whether a doubtful epoch excuses a page that is not as the format wants. Called
    /// before the content lock is taken for `decode`: it may read other pages, which must not hold
    /// up a lock. The caller holds the file's lock.
    @inline(__always)
    func examine(
        _ file: OpenFile, page: Int, _ sealed: UnsafeRawPointer, _ operation: ContentOperation,
        _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard durability.doubt.isOpen else { return }
        let prefix = RecordPrefix(reading: sealed + layout.recordOffset(ofPage: page))
        let (length, isLast) = expectation(file, page)
        if Int(prefix.length) == length, prefix.isFinal == isLast { return }
        if context.excuses.contain(page, of: file) { return }
        if try isExcused(file, page, operation, caller, context) {
            context.excuses.note(page, of: file)
        }
    }

    /// Whether a page of a doubtful epoch excuses this one. Candidates are the page itself, the
    /// nearest non-zero page before it, and the last non-zero page. Earlier pages in the same block
    /// of the backing file system are candidates, too. An epoch counts only if its page
    /// authenticates.
    private func isExcused(
        _ file: OpenFile, _ page: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> Bool {
        let lastPage = max(layout.pageCount(forSize: file.sizeBytes) - 1, 0)
        var candidates = [page]
        if let before = try lastPageWithData(file.descriptor, before: page), before >= 0 {
            candidates.append(before)
        }
        let perBlock = max(1, store.traits.blockBytes / layout.pageBytes)
        candidates += ((page / perBlock) * perBlock..<max(page, (page / perBlock) * perBlock))
        if let last = try lastPageWithData(file.descriptor, before: lastPage + 1) {
            candidates.append(max(last, page))
        }
        for candidate in candidates {
            let epoch = try authenticatedEpoch(file, candidate, operation, caller, context)
            if let epoch, durability.doubt.contains(epoch) { return true }
        }
        return false
    }

    /// Returns the epoch of a page; nil if the page does not authenticate.
    func authenticatedEpoch(
        _ file: OpenFile, _ page: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> UInt32? {
        try withTemporaryPage { buffer throws(Errno) -> UInt32? in
            try readPage(file, page, to: buffer)
            let record = buffer + layout.recordOffset(ofPage: page)
            return try withContent(of: file, operation, caller, context) {
                content throws(Errno) in
                // Scrub before a lock may proceed.
                defer { explicit_bzero(buffer + 4096, 4096) }
                let ok = try open(record, page: page, of: file, to: buffer + 4096, content)
                return ok ? RecordPrefix(reading: record).epoch : nil
            }
        }
    }

    /// Runs `body` with two pages of scratch memory, which are scrubbed afterwards.
    func withTemporaryPage<R>(
        _ body: (UnsafeMutableRawPointer) throws(Errno) -> R
    ) throws(Errno) -> R {
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: 8192, alignment: 64)
        buffer.initializeMemory(as: UInt8.self, repeating: 0, count: 8192)
        defer {
            explicit_bzero(buffer, 8192)
            buffer.deallocate()
        }
        return try body(buffer)
    }
}

extension Array where Element == UInt8 {
    /// `withUnsafeBytes` with a typed error.
    package func withUnsafeBytesTyped<R, E: Error>(
        _ body: (UnsafeRawBufferPointer) throws(E) -> R
    ) throws(E) -> R {
        try withUnsafeBufferPointer { buffer throws(E) in try body(UnsafeRawBufferPointer(buffer)) }
    }
}
