import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Files while they are open: bringing one `OpenFile` into being for all handles, and taking it down
// with the last.
extension Volume {
    /// The node's open file, with one handle more. Reads the header and finds the end; touches no
    /// key.
    ///
    /// `wasNew` is true where it was not open before; then the last page is in `context.sealed` at
    /// `lastPageOffset`.
    func acquire(
        _ node: Node, _ context: WorkerContext
    ) throws(Errno) -> (file: OpenFile, wasNew: Bool, lastPageOffset: Int) {
        guard node.isRegular else { throw .invalidArgument }
        node.openLock.lockNow()
        defer { node.openLock.unlock() }
        if let file = node.file {
            file.handleCount += 1
            return (file, false, 0)
        }
        if node.isSalvaged { throw .ioError }
        let opened = try openBacking(node)
        let made = try load(
            node, opened.descriptor, opened.status, opened.isWritable, context)
        attach(made.0, to: node)
        return (made.0, true, made.1)
    }

    /// Makes `file` the node's, with one handle. The open lock is held, or nobody knows the node
    /// yet.
    func attach(_ file: OpenFile, to node: Node) {
        file.handleCount = 1
        node.file = file
        node.protectionClass = file.protectionClass
        openNodesLock.lockNow()
        openNodes[ObjectIdentifier(node)] = node
        openNodesLock.unlock()
    }

    /// Gives a handle of the kernel's back.
    func end(_ handle: FileHandle, _ context: WorkerContext) {
        let file = handle.file
        // Asked for others after the gate: an open that it let through counted before.
        if handle.end(), gate.state(of: file.protectionClass) != .open,
            file.kernelHandles.load(ordering: .sequentiallyConsistent) == 0,
            file.hasKey || file.node.hasCachedPages.load(ordering: .relaxed)
        {
            // Row L3, also where the daemon itself still has the file open.
            file.forgetKey()
            wipeAfterClose(file.node, context)
        }
        release(file, context)
    }

    /// The key of a file that was used while locked goes with its last close, and its pages with
    /// it.
    private func wipeAfterClose(_ node: Node, _ context: WorkerContext?) {
        context?.unlockContent()
        forEachContext { $0.drain(wiping: true, patience: .seconds(1)) }
        invalidateLater(node)
    }

    /// Gives a handle back; with the last one the size hint is written, the key wiped and the
    /// descriptor closed.
    func release(_ file: OpenFile, _ context: WorkerContext?) {
        let node = file.node
        node.openLock.lockNow()
        file.handleCount -= 1
        guard file.handleCount == 0 else {
            node.openLock.unlock()
            return
        }
        file.lock.lockWrite()
        putHint(file)
        // The next one to open it would not know.
        if file.hasUnsyncedCut, !isReadOnly, !node.isSuperseded, (try? settleCut(file)) == nil {
            unsyncedCuts.note(node.inode)
        }
        if file.hasUnsyncedKey, !unsyncedKeys.noteIfRoom(node.inode), (try? syncData(file)) == nil {
            unsyncedKeys.note(node.inode)
        }
        file.lock.unlock()
        let serial = file.keySerial
        file.forgetKey()
        node.file = nil
        openNodesLock.lockNow()
        openNodes[ObjectIdentifier(node)] = nil
        openNodesLock.unlock()
        node.openLock.unlock()
        // Asked after the node has no open file any more: a lock that begins now either sees that,
        // or is seen here.
        let locked = gate.state(of: file.protectionClass) != .open
        if locked, serial != 0 || node.hasCachedPages.load(ordering: .relaxed) {
            wipeAfterClose(node, context)
        }
    }

    /// Of the directory that the node is in, or was when it was replaced: an empty file has its
    /// class. Nobody else's will do.
    private func directoryState(whereLast node: Node) throws(Errno) -> DirectoryState {
        if let link = node.link { return try directoryState(of: link.parent) }
        guard let kept = node.kept else { throw .staleNFSFileHandle }
        return kept.directory
    }

    /// Files of up to so many pages are read whole when they are opened: their header and their end
    /// are needed.
    private static let pagesReadAtOpen = 4

    private func load(
        _ node: Node, _ descriptor: Int32, _ status: FileStatus, _ isWritable: Bool,
        _ context: WorkerContext
    ) throws(Errno) -> (OpenFile, Int) {
        let pageBytes = layout.pageBytes
        let directory: DirectoryState
        do throws(Errno) {
            directory = try directoryState(whereLast: node)
        } catch {
            storage.close(descriptor)
            throw error
        }
        // Before anything is read: what is not in doubt now has nothing to be excused, and gets it
        // only by `noteHalfDone`.
        let isBeyondDoubt = !hasDoubt.load(ordering: .acquiring)
        // From here on the descriptor is the file's, which closes it.
        let file = OpenFile(
            node: node, storage: storage, descriptor: descriptor, isWritable: isWritable,
            protectionClass: directory.protectionClass, header: nil, directoryID: directory.id)
        file.isBeyondDoubt = isBeyondDoubt
        file.hasUnsyncedKey = unsyncedKeys.contains(node.inode)
        file.presumeSetIDBits(backing: status.st_mode)
        // Pages that a failed sync has dropped are still in memory: what may be in doubt is judged
        // by what is on the disk.
        if !isBeyondDoubt { storage.forgetCached(descriptor) }
        let backingBytes = Int(status.st_size)
        let page0 = context.sealed
        // Both ends of a small file at once. What lies between them need not be readable.
        var isWhole = backingBytes / pageBytes <= Volume.pagesReadAtOpen
        let got: Int
        do throws(Errno) {
            got = try storage.pread(
                descriptor, page0, isWhole ? backingBytes : pageBytes, at: 0)
        } catch {
            guard isWhole, backingBytes > pageBytes else { throw error }
            isWhole = false
            got = try storage.pread(descriptor, page0, pageBytes, at: 0)
        }
        let filled = isWhole ? max(pageBytes, backingBytes) : pageBytes
        if got < filled {
            (page0 + got).initializeMemory(as: UInt8.self, repeating: 0, count: filled - got)
        }
        if backingBytes == 0 { return adoptEmpty(file) }
        if isZero(page0, pageBytes) {
            switch try contentWithoutHeader(descriptor, backingBytes) {
            case .none: break
            case .excused(let finding):
                report(.healed(path: path(of: node), finding: finding))
                file.hasUnsyncedCut = true
            case .damaged(let reason):
                report(.integrityFailure(path: path(of: node), reason: reason))
                throw .ioError
            }
            file.hasHint = true
            file.needsHint = true
            return adoptEmpty(file)
        }
        do throws(FormatError) {
            file.header = try FileHeader(reading: page0, macKey: keys.headers)
        } catch {
            report(.integrityFailure(path: path(of: node), reason: error.description))
            throw .ioError
        }
        file.headerBytes = [UInt8](UnsafeRawBufferPointer(start: page0, count: FileHeader.bytes))
        file.protectionClass = file.header!.protectionClass
        if file.header!.wrappedKey.isEmpty {
            file.hasHint = backingBytes != pageBytes
            file.needsHint = file.hasHint
            file.hasUnsyncedCut = backingBytes >= 2 * pageBytes
            return adoptEmpty(file)
        }

        file.noteOpened(page0)
        let pages = max(1, backingBytes / pageBytes)
        var last = pages - 1
        var offset = 0
        if last > 0 {
            offset = isWhole ? last * pageBytes : pageBytes
            if !isWhole {
                _ = try storage.pread(descriptor, page0 + offset, pageBytes, at: last * pageBytes)
            }
            if isZero(page0 + offset, pageBytes) {
                // A power cut can leave zero pages after the end.
                guard let found = try lastPageWithData(descriptor, before: last) else {
                    report(
                        .integrityFailure(
                            path: path(of: node), reason: "too many zero pages after the end"))
                    throw .ioError
                }
                last = max(found, 0)
                if last == 0 {
                    offset = 0
                } else if isWhole {
                    offset = last * pageBytes
                } else {
                    _ = try storage.pread(
                        descriptor, page0 + offset, pageBytes, at: last * pageBytes)
                }
            }
        }
        let prefix = RecordPrefix(reading: page0 + offset + layout.recordOffset(ofPage: last))
        guard Int(prefix.length) <= layout.capacity(ofPage: last) else {
            report(
                .integrityFailure(path: path(of: node), reason: "page \(last): impossible length"))
            throw .ioError
        }
        guard last > 0 || prefix.length > 0 else {
            // Not an empty file: that has no key.
            report(
                .integrityFailure(
                    path: path(of: node), reason: "page 0 has no content, and the header a key"))
            throw .ioError
        }
        let size = layout.start(ofPage: last) + Int(prefix.length)
        guard size <= PageLayout.maximumSizeBytes else {
            report(.integrityFailure(path: path(of: node), reason: "impossible size"))
            throw .ioError
        }
        // Written since the last durable point, or for all that its epoch says: perhaps when the
        // file was cut.
        file.mayHaveUncommittedCut =
            prefix.epoch >= epoch.load(ordering: .relaxed) || isDoubtful(prefix.epoch)
        file.hasHint = backingBytes % pageBytes != 0
        file.needsHint = layout.backingSize(forSize: size) != backingBytes
        file.sizeBytes = size
        return (file, offset)
    }

    private func adoptEmpty(_ file: OpenFile) -> (OpenFile, Int) {
        file.sizeBytes = 0
        file.isBeyondDoubt = true
        if unsyncedCuts.contains(file.node.inode) { file.hasUnsyncedCut = true }
        return (file, 0)
    }

    private enum ContentWithoutHeader {
        /// Nothing but zeros: an empty file.
        case none
        /// An empty file, after a power cut.
        case excused(String)
        case damaged(String)
    }

    /// The content behind a first page of zeros. Nobody vouches for the length of such a file: so
    /// many pages are looked at.
    private func contentWithoutHeader(
        _ descriptor: Int32, _ backingBytes: Int
    ) throws(Errno) -> ContentWithoutHeader {
        try withTemporaryPage { buffer throws(Errno) in
            let pageBytes = layout.pageBytes
            let finding = "page 0 is zero before other data"
            var next = 1
            let end = (backingBytes - 1) / pageBytes + 1
            // The first pages of a new file reach the disk in any order. Without a header there is
            // no key: nothing of it can be read, and its epochs are what the pages say. An attacker
            // who wants to misuse that can empty the file as well.
            for looked in 0..<Volume.zeroPagesSearched {
                switch try nextPageWithData(descriptor, from: next, before: end, to: buffer) {
                case .page(let page):
                    // A page of another epoch was durable, and so was page 0 before it. A piece of
                    // a page says nothing.
                    let isWhole = page < backingBytes / pageBytes
                    guard hasDoubt.load(ordering: .acquiring),
                        !isWhole || isDoubtful(RecordPrefix(reading: buffer).epoch)
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

    /// Before the gate is asked for `verifyEnd`.
    func examineEnd(
        _ file: OpenFile, lastPageOffset: Int, _ operation: ContentOperation, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard file.sizeBytes > 0 else { return }
        try examine(
            file, page: layout.pageCount(forSize: file.sizeBytes) - 1,
            context.sealed + lastPageOffset, operation, caller, context)
    }

    /// After the gate let an open through: authenticates the last page, and with it the size. Loads
    /// the key.
    func verifyEnd(
        _ file: OpenFile, lastPageOffset: Int, _ context: WorkerContext
    ) throws(Errno) {
        file.isEndVerified = true
        guard file.sizeBytes > 0 else { return }
        let page = layout.pageCount(forSize: file.sizeBytes) - 1
        let sealed = context.sealed + lastPageOffset
        let prefix = RecordPrefix(reading: sealed + layout.recordOffset(ofPage: page))
        context.usePlain(layout.pageBytes)
        do throws(Errno) {
            try decode(file, page: page, sealed, to: context.plain, context)
            if !prefix.isFinal { file.needsMending = true }
            // `sealingEpoch` gave it such an epoch only where nothing was left to be excused.
            if !file.isBeyondDoubt {
                file.isBeyondDoubt = doubtful.allSatisfy { $0.upperBound < prefix.epoch }
            }
        } catch .ioError {
            // Reported. The file opens all the same: every other page can still be read.
        }
    }

    // MARK: Later

    /// Drops a node's cached pages from a thread that serves no requests.
    func invalidateLater(_ node: Node) {
        guard node.hasCachedPages.load(ordering: .relaxed), let kernel,
            drops.announce(for: node.protectionClass ?? .none)
        else { return }
        background.run { [self] in
            drops.perform({ !node.isHeldByKernel && isClosed(node) }) {
                node.hasCachedPages.store(false, ordering: .relaxed)
                kernel.invalidateContent(of: node.id)
            }
        }
    }

    /// Whether no READ can fill a page of it. Of class B while locked: files that programs have
    /// open, with their key, go on.
    func isClosed(_ node: Node) -> Bool {
        switch gate.state(of: node.protectionClass ?? .none) {
        case .open: false
        case .closing, .closed: true
        case .openFilesOnly: !(node.isHeldByKernel && node.file?.hasKey == true)
        }
    }

    /// Drops what a refused write left with the kernel, which puts the data into its pages before
    /// it asks: a mapping may have caught a page meanwhile, and would go on showing, and write back
    /// one day, what was never accepted.
    func dropRefused(_ node: Node) {
        guard let kernel, !node.isDroppingRefused.exchange(true, ordering: .relaxed) else { return }
        guard drops.announce(for: node.protectionClass ?? .none) else {
            node.isDroppingRefused.store(false, ordering: .relaxed)
            return
        }
        background.run { [self] in
            // Before the pages go: what is refused from here on asks again.
            node.isDroppingRefused.store(false, ordering: .relaxed)
            drops.perform({ isClosed(node) }) { kernel.invalidateContent(of: node.id) }
        }
    }

    /// Drops the pages of a locked file that has, after all, the class it had; its key is gone
    /// already.
    func dropLocked(_ node: Node) {
        node.hasCachedPages.store(true, ordering: .relaxed)
        guard let kernel, drops.announce(for: node.protectionClass ?? .none) else { return }
        background.run { [self] in
            drops.perform({ isClosed(node) }) { kernel.invalidateContent(of: node.id) }
        }
    }
}
