import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Files while they are open: making one `OpenFile` for all handles, and closing it with the last.
extension Volume {
    /// Returns the node's open file, with one more handle. Reads the header and finds the end,
    /// without a key.
    ///
    /// `wasNew` is true if the file was not open before. Then the last page is in `context.sealed`
    /// at `lastPageOffset` (bytes).
    func acquire(
        _ node: Node, _ context: WorkerContext
    ) throws(Errno) -> (file: OpenFile, wasNew: Bool, lastPageOffset: Int) {
        guard node.isRegular else { throw .invalidArgument }
        defer { forgetNamesInKernel(of: node) }
        return try node.openLock.withLock { () throws(Errno) in
            if let file = node.file {
                file.uses.all.value += 1
                return (file, false, 0)
            }
            if node.isSalvaged { throw .ioError }
            let opened = try backing.open(node)
            let made = try load(
                node, opened.descriptor, opened.status, opened.isWritable, context)
            attach(made.0, to: node)
            return (made.0, true, made.1)
        }
    }

    /// Makes `file` the node's open file, with one handle. The caller holds the open lock, or no
    /// other thread knows the node yet.
    func attach(_ file: OpenFile, to node: Node) {
        file.uses.all.value = 1
        node.file = file
        node.protectionClass = file.protectionClass
        nodes.open.insert(node)
    }

    /// Gives back a handle of the kernel.
    func end(_ handle: FileHandle, _ context: WorkerContext) {
        let file = handle.file
        // Count the other handles only after reading the gate: an open that passed the gate was
        // counted before.
        if handle.end(), gate.classes.state(of: file.protectionClass) != .open,
            file.uses.kernelHandles.load(ordering: .sequentiallyConsistent) == 0,
            file.hasKey || file.node.cachedPages.exist.load(ordering: .relaxed)
        {
            // Row L3, also while the daemon itself has the file open.
            file.key.forget()
            wipeAfterClose(file.node, context)
        }
        release(file, context)
    }

    /// Wipes the key of a file that was used while locked, and drops its pages, at its last close.
    private func wipeAfterClose(_ node: Node, _ context: WorkerContext?) {
        context?.unlockContent()
        gate.contexts.forEach { $0.drain(wiping: true, patience: .seconds(1)) }
        invalidateLater(node)
    }

    /// Gives back a handle. The last one writes the size hint, wipes the key and closes the
    /// descriptor.
    func release(_ file: OpenFile, _ context: WorkerContext?) {
        let node = file.node
        let lastKey: UInt64? = node.openLock.withLock {
            file.uses.all.value -= 1
            return file.uses.all.value == 0 ? detach(file, from: node) : nil
        }
        guard let lastKey else { return }
        // Read the gate after the node has lost its open file. A lock that begins now either sees
        // that, or is seen here.
        let locked = gate.classes.state(of: file.protectionClass) != .open
        if locked, lastKey != 0 || node.cachedPages.exist.load(ordering: .relaxed) {
            wipeAfterClose(node, context)
        }
    }

    /// Takes the node's open file away, which has no handle any more. Returns the key's serial. The
    /// caller holds the open lock.
    private func detach(_ file: OpenFile, from node: Node) -> UInt64 {
        file.withWriteAccess { access in
            putHint(access)
            // The next open would not know of an unsynced cut or key.
            if file.syncState.isCutUnsynced, !isReadOnly, !node.isSuperseded,
                (try? settleCut(access)) == nil
            {
                durability.unsynced.cuts.note(node.inode)
            }
            if file.syncState.isKeyUnsynced, !durability.unsynced.keys.noteIfRoom(node.inode),
                (try? syncData(access)) == nil
            {
                durability.unsynced.keys.note(node.inode)
            }
        }
        if node.link == nil { seals.notes.forget(inode: node.inode) }
        let serial = file.key.serial
        file.key.forget()
        node.file = nil
        nodes.open.remove(node)
        return serial
    }

    /// Returns the directory that the node is in, or was in when it was replaced. An empty file has
    /// the class of this directory only.
    private func lastDirectory(of node: Node) throws(Errno) -> DirectoryState {
        if let link = node.link { return try backing.directoryState(of: link.parent) }
        guard let kept = node.kept else { throw .staleNFSFileHandle }
        return kept.directory
    }

    /// Files of up to this many pages are read whole at open, because header and end are both
    /// needed.
    private static let pagesReadAtOpen = 4

    /// Reads the header and finds the end of a file. Takes over the descriptor, also if it throws.
    private func load(
        _ node: Node, _ descriptor: Int32, _ status: FileStatus, _ isWritable: Bool,
        _ context: WorkerContext
    ) throws(Errno) -> (OpenFile, Int) {
        // From here on the descriptor belongs to `backing`, which closes it.
        let backing = BackingFile(storage, descriptor, isWritable: isWritable)
        let directory = try lastDirectory(of: node)
        // Before anything is read: a file that is not in doubt now gets findings excused only after
        // `noteHalfDone`.
        var beginning = FileBeginning(
            headers: FileHeaderState(directoryID: directory.id),
            isBeyondDoubt: !durability.doubt.isOpen, seal: seals.unjudged)
        if durability.unsynced.keys.contains(node.inode) {
            beginning.syncState.openedWithUnsyncedKey()
        }
        // Pages that a failed sync has lost are still in memory. A file in doubt must be judged by
        // the disk.
        if !beginning.isBeyondDoubt { storage.forgetCached(descriptor) }
        let offset = try read(
            &beginning, of: node, descriptor, Int(status.st_size), to: context.sealed)
        if seals.areUsed, !seals.areOpen, beginning.headers.stored == nil,
            let parent = node.link?.parent
        {
            beginning.origin = try self.backing.vouch(
                for: directory.protectionClass, in: parent, directory)
        }
        let file = OpenFile(
            node: node, backing: backing,
            protectionClass: beginning.headers.stored?.header.protectionClass
                ?? directory.protectionClass,
            beginning)
        file.notes.presumeSetIDBits(backing: status.st_mode)
        if seals.areOpen { file.notes.seal.value = judgement(of: file) }
        return (file, offset)
    }

    /// Reads the header and the last page into `buffer`. Returns the offset of the last page there,
    /// bytes.
    private func read(
        _ beginning: inout FileBeginning, of node: Node, _ descriptor: Int32, _ backingBytes: Int,
        to buffer: UnsafeMutableRawPointer
    ) throws(Errno) -> Int {
        let pageBytes = layout.pageBytes
        let isWhole = try readFirstPage(descriptor, backingBytes, to: buffer)
        if backingBytes == 0 { return beginEmpty(&beginning, node, hasTail: false) }
        if isZero(buffer, pageBytes) {
            switch try contentWithoutHeader(descriptor, backingBytes) {
            case .none: break
            case .excused(let finding):
                report(.healed(path: path(of: node), finding: finding))
                beginning.syncState.foreignPagesCut()
            case .damaged(let reason): throw refuse(node, reason)
            }
            return beginEmpty(&beginning, node, hasTail: true)
        }
        let header: FileHeader
        do throws(FormatError) {
            header = try keys.header(reading: buffer)
        } catch {
            throw refuse(node, error.description)
        }
        let format = keys.headerFormat(buffer)
        if format >= .version2 { try requirePlaces(of: node, header, descriptor) }
        let bytes = [UInt8](UnsafeRawBufferPointer(start: buffer, count: FileHeader.bytes))
        beginning.headers.put(
            StoredHeader(
                header: header, bytes: bytes, format: format,
                capsule: gate.capsules?.fetch(header.capsuleID)))
        if header.wrappedKey.isEmpty {
            if backingBytes >= 2 * pageBytes { beginning.syncState.foreignPagesCut() }
            return beginEmpty(&beginning, node, hasTail: backingBytes != pageBytes)
        }
        beginning.headers.opened(with: buffer)

        let (last, offset) = try readLastPage(
            of: node, descriptor, max(1, backingBytes / pageBytes), isWhole: isWhole, to: buffer)
        let prefix = RecordPrefix(reading: buffer + offset + layout.recordOffset(ofPage: last))
        let size = try size(of: node, lastPage: last, prefix)
        // The last page was written since the last durable point, or its epoch is in doubt. A cut
        // may have come with it.
        if prefix.epoch >= durability.epoch.load(ordering: .relaxed)
            || durability.doubt.contains(prefix.epoch)
        {
            beginning.syncState.cutMade()
        }
        beginning.extent = .opened(
            sizeBytes: size, hasTail: backingBytes % pageBytes != 0,
            needsHint: layout.backingSize(forSize: size) != backingBytes)
        return offset
    }

    private func beginEmpty(
        _ beginning: inout FileBeginning, _ node: Node, hasTail: Bool
    ) -> Int {
        beginning.extent = .opened(sizeBytes: 0, hasTail: hasTail, needsHint: hasTail)
        beginning.isBeyondDoubt = true
        if durability.unsynced.cuts.contains(node.inode) { beginning.syncState.foreignPagesCut() }
        return 0
    }

    /// Reports that a file does not open. Returns the error.
    private func refuse(_ node: Node, _ reason: String) -> Errno {
        report(.integrityFailure(path: path(of: node), reason: reason))
        return .ioError
    }

    /// Reads the first page; bytes that the file lacks become zeros. Returns true if all of the
    /// file was read.
    private func readFirstPage(
        _ descriptor: Int32, _ backingBytes: Int, to buffer: UnsafeMutableRawPointer
    ) throws(Errno) -> Bool {
        let pageBytes = layout.pageBytes
        // One read for both ends of a small file. The pages in between may be unreadable.
        var isWhole = backingBytes / pageBytes <= Volume.pagesReadAtOpen
        let got: Int
        do throws(Errno) {
            got = try storage.pread(
                descriptor, buffer, isWhole ? backingBytes : pageBytes, at: 0)
        } catch {
            guard isWhole, backingBytes > pageBytes else { throw error }
            isWhole = false
            got = try storage.pread(descriptor, buffer, pageBytes, at: 0)
        }
        let filled = isWhole ? max(pageBytes, backingBytes) : pageBytes
        if got < filled {
            (buffer + got).initializeMemory(as: UInt8.self, repeating: 0, count: filled - got)
        }
        return isWhole
    }

    /// Finds the last page of a file with `pages` pages, and reads it behind the first one unless
    /// all of the file is there (`isWhole`).
    private func readLastPage(
        of node: Node, _ descriptor: Int32, _ pages: Int, isWhole: Bool,
        to buffer: UnsafeMutableRawPointer
    ) throws(Errno) -> (page: Int, offset: Int) {
        let pageBytes = layout.pageBytes
        let end = pages - 1
        guard end > 0 else { return (0, 0) }
        let offset = isWhole ? end * pageBytes : pageBytes
        if !isWhole {
            _ = try storage.pread(descriptor, buffer + offset, pageBytes, at: end * pageBytes)
        }
        guard isZero(buffer + offset, pageBytes) else { return (end, offset) }
        // A power cut can leave zero pages after the end.
        guard let found = try lastPageWithData(descriptor, before: end) else {
            throw refuse(node, "too many zero pages after the end")
        }
        guard found > 0 else { return (0, 0) }
        if isWhole { return (found, found * pageBytes) }
        _ = try storage.pread(descriptor, buffer + offset, pageBytes, at: found * pageBytes)
        return (found, offset)
    }

    /// Returns the size of a file by its last page, bytes.
    private func size(
        of node: Node, lastPage last: Int, _ prefix: RecordPrefix
    ) throws(Errno) -> Int {
        guard Int(prefix.length) <= layout.capacity(ofPage: last) else {
            throw refuse(node, "page \(last): impossible length")
        }
        guard last > 0 || prefix.length > 0 else {
            // An empty file has no key, so this one is damaged.
            throw refuse(node, "page 0 has no content, and the header a key")
        }
        let size = layout.start(ofPage: last) + Int(prefix.length)
        guard size <= PageLayout.maximumSizeBytes else { throw refuse(node, "impossible size") }
        return size
    }

    private enum ContentWithoutHeader {
        /// Only zeros: an empty file.
        case none
        /// An empty file, after a power cut.
        case excused(String)
        case damaged(String)
    }

    /// Judges the content behind a first page of zeros. The length of such a file is not
    /// trustworthy, so at most `zeroPagesSearched` pages with data are read.
    private func contentWithoutHeader(
        _ descriptor: Int32, _ backingBytes: Int
    ) throws(Errno) -> ContentWithoutHeader {
        try withTemporaryPage { buffer throws(Errno) in
            let pageBytes = layout.pageBytes
            let finding = "page 0 is zero before other data"
            var next = 1
            let end = (backingBytes - 1) / pageBytes + 1
            // The first pages of a new file reach the disk in any order. Without a header there is
            // no key: no page can be opened, and their epochs can't be verified. An attacker who
            // can write this could also empty the file.
            for looked in 0..<Volume.zeroPagesSearched {
                switch try nextPageWithData(descriptor, from: next, before: end, to: buffer) {
                case .page(let page):
                    // A whole page of another epoch was durable, so page 0 was, too. A part of a
                    // page proves nothing.
                    let isWhole = page < backingBytes / pageBytes
                    guard durability.doubt.isOpen,
                        !isWhole || durability.doubt.contains(RecordPrefix(reading: buffer).epoch)
                    else { return .damaged(finding) }
                    next = page + 1
                case .none: return looked == 0 ? .none : .excused(finding)
                case .tooManyZeros:
                    return .damaged("too many zero pages, the first one among them")
                }
            }
            return .excused(finding)
        }
    }

    /// Examines the last page for `verifyEnd`, before the gate is asked.
    func examineEnd(
        _ file: OpenFile, lastPageOffset: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard file.sizeBytes > 0 else { return }
        try examine(
            file, page: layout.pageCount(forSize: file.sizeBytes) - 1,
            context.sealed + lastPageOffset, operation, caller, context)
    }

    /// Authenticates the last page, and with it the size, after the gate has admitted an open.
    /// Loads the key.
    func verifyEnd(
        _ access: borrowing FileWriteAccess, lastPageOffset: Int,
        _ content: borrowing ContentAccess
    ) throws(Errno) {
        let context = content.context
        let file = access.file
        access.extent.endVerified()
        guard file.sizeBytes > 0 else { return }
        let page = layout.pageCount(forSize: file.sizeBytes) - 1
        let sealed = context.sealed + lastPageOffset
        let prefix = RecordPrefix(reading: sealed + layout.recordOffset(ofPage: page))
        content.usePlain(layout.pageBytes)
        do throws(Errno) {
            try decode(file, page: page, sealed, to: context.plain, content)
            if !prefix.isFinal { access.extent.endTorn() }
            // While a file may have findings, `sealingEpoch` gives its pages no epoch after the
            // doubtful ones.
            if !file.notes.isBeyondDoubt.value {
                file.notes.isBeyondDoubt.value = durability.doubt.intervals.allSatisfy {
                    $0.upperBound < prefix.epoch
                }
            }
        } catch .ioError {
            // Reported already. The file still opens: each other page can be read.
        }
    }

    // MARK: Later

    /// Drops a node's cached pages, on a background thread. The node stays marked: a lock drops its
    /// pages once more, so that none is left when it ends.
    func invalidateLater(_ node: Node) {
        guard node.cachedPages.exist.load(ordering: .relaxed), let kernel,
            gate.drops.announce(for: node.protectionClass ?? .none)
        else { return }
        background.add { [self] in
            gate.drops.perform({ !node.isHeldByKernel && isClosed(node) }) {
                kernel.invalidateContent(of: node.id)
            }
        }
    }

    /// Whether the gate lets no READ fill a page of the node. While locked, class B files that
    /// programs have open go on, with their key.
    func isClosed(_ node: Node) -> Bool {
        switch gate.classes.state(of: node.protectionClass ?? .none) {
        case .open: false
        case .closing, .closed: true
        case .openFilesOnly: !(node.isHeldByKernel && node.file?.hasKey == true)
        }
    }

    /// Drops the pages of a refused write. The kernel fills its pages before it asks. A mapping may
    /// have caught such a page: it would show data that was never accepted, and write it back
    /// later.
    func dropRefused(_ node: Node) {
        guard let kernel, !node.cachedPages.isDroppingRefused.exchange(true, ordering: .relaxed)
        else { return }
        guard gate.drops.announce(for: node.protectionClass ?? .none) else {
            node.cachedPages.isDroppingRefused.store(false, ordering: .relaxed)
            return
        }
        background.add { [self] in
            // Before the drop: a write that is refused after this point starts a new drop.
            node.cachedPages.isDroppingRefused.store(false, ordering: .relaxed)
            gate.drops.perform({ isClosed(node) }) { kernel.invalidateContent(of: node.id) }
        }
    }

    /// Drops the pages of a locked file whose change of class failed. Its key is gone already.
    func dropLocked(_ node: Node) {
        node.cachedPages.exist.store(true, ordering: .relaxed)
        guard let kernel, gate.drops.announce(for: node.protectionClass ?? .none) else { return }
        background.add { [self] in
            gate.drops.perform({ isClosed(node) }) { kernel.invalidateContent(of: node.id) }
        }
    }
}
