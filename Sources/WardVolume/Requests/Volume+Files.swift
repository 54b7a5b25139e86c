import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Requests on open files.
extension Volume {
    // MARK: Opening

    /// Throws `EPERM` unless an existing file of this class may be opened now (rows O1 and O2).
    func mayOpen(
        _ file: OpenFile, _ operation: ContentOperation, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard gate.classes.state(of: file.protectionClass) == .open else {
            throw denied(file.node, file.protectionClass, operation, caller)
        }
    }

    /// Throws `EPERM` unless a file may have this class now (row O3). The event of a refusal names
    /// `node` and `operation`.
    func mayCreate(
        _ protectionClass: ProtectionClass, _ caller: Caller,
        _ operation: ContentOperation = .create,
        of node: Node? = nil
    ) throws(Errno) {
        guard
            ClassRules.admitsNewKey(
                of: protectionClass, in: gate.classes.state(of: protectionClass))
        else { throw denied(node, protectionClass, operation, caller) }
    }

    /// Opens a file. `flags` as in open(2), with `O_TRUNC` (`FUSE_ATOMIC_O_TRUNC`).
    /// `dropPrivilegeBits` counts only with a truncation. Throws `EPERM` where the class is closed.
    public func open(
        _ id: NodeID, flags: Int32, dropPrivilegeBits: Bool, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> OpenedFile {
        let node = node(id)
        let (file, wasNew, lastPageOffset) = try acquireForProgram(node, context)
        // Before the gate is asked: a lock that begins now sees that the file is open.
        let handle = FileHandle(node: node, file: file, flags: flags)
        var isFirst = false
        var hasLostBits = false
        do throws(Errno) {
            try mayOpen(file, .open, caller, context)
            if flags & O_ACCMODE != O_RDONLY {
                if isReadOnly { throw .readOnlyFileSystem }
                if !file.notes.seal.value.admitsChanges {
                    try file.withWriteAccess { _ throws(Errno) in try requireSeal(of: file) }
                }
            }
            if flags & O_TRUNC != 0 {
                try file.withWriteAccess { access throws(Errno) in
                    try setSize(access, to: 0, .truncate, caller, context)
                    if dropPrivilegeBits { hasLostBits = try dropPrivileges(access, caller) }
                }
            } else if !(file.published.isEndVerified && (file.hasKey || file.sizeBytes == 0)) {
                try file.withWriteAccess { access throws(Errno) in
                    var offset = lastPageOffset
                    if !wasNew || file.times.lastChange != 0 {
                        // Another request opened the file first (for an attribute, say), or it has
                        // changed since.
                        offset = 0
                        let last = max(0, layout.pageCount(forSize: file.sizeBytes) - 1)
                        try readPage(file, last, to: context.sealed)
                    }
                    try examineEnd(file, lastPageOffset: offset, .open, caller, context)
                    defer { context.excuses.forget() }
                    try withContent(of: file, .open, caller, context) { content throws(Errno) in
                        isFirst = !file.extent.isEndVerified
                        try verifyEnd(access, lastPageOffset: offset, content)
                    }
                }
            }
        } catch {
            end(handle, context)
            throw error
        }
        if hasLostBits { kernel?.invalidateAttributes(of: node.id) }
        if isFirst, file.published.needsHint {
            // The hint was wrong or missing, so the kernel knows a wrong size. It must drop the
            // attributes before it learns that the file is open.
            kernel?.invalidateAttributes(of: node.id)
        }
        node.cachedPages.exist.store(true, ordering: .relaxed)
        return OpenedFile(handle: .handle(handle), keepCache: true)
    }

    /// Clears set-ID bits, as each change by a caller without `CAP_FSETID` does. With a nil
    /// `caller` it clears none, and reads which bits the backing store has left.
    ///
    /// Returns true if bits are gone. The kernel shows and honours them until it is told
    /// (`KernelNotifier.invalidateAttributes`). The request must do so before its answer, and
    /// after the end of this access.
    private func dropPrivileges(
        _ access: borrowing FileWriteAccess, _ caller: Caller?
    ) throws(Errno) -> Bool {
        let file = access.file
        let known = file.notes.setIDBits
        guard known != 0 else { return false }
        let status = try storage.fstat(file.descriptor)
        let mode = try trueMode(of: file.node, status) & 0o7777
        var kept = mode
        if let caller {
            kept = Volume.withoutPrivilegeBits(mode) { caller.isMember(of: status.st_gid) }
        }
        if kept != mode {
            try setMode(
                file.descriptor, kept, isDirectory: false,
                wasMarked: BackingMode.isMarked(status.st_mode))
        }
        file.notes.setIDBits = kept
        return known & ~kept != 0
    }

    // MARK: Content

    /// Returns up to `count` bytes at `offsetBytes`, in a buffer of `context` that is valid until
    /// `context.finishRequest()`.
    ///
    /// With `target`, puts them there instead. Pages are decrypted whole, so up to 4,096 bytes
    /// before and behind are overwritten. After an error content may lie there, too: the buffer's
    /// owner wipes it.
    public func read(
        _ handle: HandleID, offsetBytes: UInt64, count: Int, caller: Caller,
        into target: UnsafeMutableRawPointer? = nil, _ context: WorkerContext
    ) throws(Errno) -> UnsafeRawBufferPointer {
        let file = handle.object(as: FileHandle.self).file
        return try file.withReadLock { () throws(Errno) in
            let size = file.sizeBytes
            let offset = Int(clamping: offsetBytes)
            guard offset < size, count > 0 else {
                try askGate(file, .read, caller, context)
                return UnsafeRawBufferPointer(start: nil, count: 0)
            }
            let end = min(offset + min(count, WorkerContext.maximumTransferBytes), size)
            let first = layout.page(at: offset)
            let last = layout.page(at: end - 1)
            let pageBytes = layout.pageBytes
            let total = (last - first + 1) * pageBytes
            // Ciphertext is read before the gate: a backing store that hangs must not hold up a
            // lock.
            try readPages(file, first, count: last - first + 1, to: context.sealed)
            if durability.doubt.isOpen {
                for page in first...last {
                    try examine(
                        file, page: page, context.sealed + (page - first) * pageBytes, .read,
                        caller, context)
                }
            }
            defer { context.excuses.forget() }
            let content = try enter(file, .read, caller, context)
            let start = layout.start(ofPage: first)
            let plain: UnsafeMutableRawPointer
            if let target {
                plain = target - (offset - start)
            } else {
                content.usePlain(total)
                plain = context.plain
            }
            do throws(Errno) {
                var sealed = context.sealed
                for page in first...last {
                    try decode(
                        file, page: page, sealed, to: plain + (layout.start(ofPage: page) - start),
                        content)
                    sealed += pageBytes
                }
            } catch {
                context.unlockContent()
                throw error
            }
            return UnsafeRawBufferPointer(
                start: plain + (offset - start), count: end - offset)
        }
    }

    /// Writes all of `data`, or throws.
    public func write(
        _ handle: HandleID, offsetBytes: UInt64, _ data: UnsafeRawBufferPointer, flags: WriteFlags,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        let file = handle.object(as: FileHandle.self).file
        // Before the content changes, like Linux's `file_modified`: a write that fails half-way has
        // changed something.
        if file.notes.setIDBits != 0, data.count > 0, flags.contains(.dropPrivilegeBits) {
            try dropPrivilegesAndTell(file, caller)
        }
        try write(file, offsetBytes: offsetBytes, data, flags: flags, caller: caller, context)
        if file.notes.setIDBits != 0, !flags.contains(.dropPrivilegeBits), !store.servesOthers {
            // The backing store clears set-ID bits at each write of a daemon that is not root.
            try dropPrivilegesAndTell(file, nil)
        }
    }

    /// Calls `dropPrivileges` with this `caller` and tells the kernel. No lock may be held.
    private func dropPrivilegesAndTell(_ file: OpenFile, _ caller: Caller?) throws(Errno) {
        let hasLostBits = try file.withWriteAccess { access throws(Errno) in
            try dropPrivileges(access, caller)
        }
        if hasLostBits { kernel?.invalidateAttributes(of: file.node.id) }
    }

    @inline(__always)
    private func write(
        _ file: OpenFile, offsetBytes: UInt64, _ data: UnsafeRawBufferPointer, flags: WriteFlags,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard data.count > 0 else { return }
        guard offsetBytes <= UInt64(PageLayout.maximumSizeBytes - data.count) else {
            throw .fileTooLarge
        }
        durability.dirt.noteBytes(data.count)
        try file.withWriteAccess { access throws(Errno) in
            defer { context.excuses.forget() }
            let oldSize = file.sizeBytes
            if flags.contains(.fromPageCache) {
                // A mapped page never makes a file longer. A page behind the end was written back
                // during an open(O_TRUNC): the kernel sends the open before it waits for the file's
                // pages.
                let count = min(data.count, file.sizeBytes - Int(offsetBytes))
                guard count > 0 else { return }
                do throws(Errno) {
                    try withSpace(context) { () throws(Errno) in
                        try store(
                            access, .data(data.baseAddress!), offset: Int(offsetBytes),
                            count: count,
                            .writeBack, caller, context)
                    }
                } catch {
                    // The kernel reports this error neither to a program that has ended nor at a
                    // lock: the page is lost.
                    report(.lost(path: path(of: file.node), reason: "a mapped page: \(error)"))
                    throw error
                }
            } else {
                do throws(Errno) {
                    try withSpace(context) { () throws(Errno) in
                        try store(
                            access, .data(data.baseAddress!), offset: Int(offsetBytes),
                            count: data.count, .write, caller, context)
                    }
                } catch {
                    if !isAdmitted(file, .write) { dropRefused(file.node) }
                    throw error
                }
                try stream(access, offset: Int(offsetBytes), count: data.count, oldSize: oldSize)
            }
        }
    }

    // MARK: Syncing and closing

    /// Answers close(2) of one descriptor. Nothing waits to be written, so only an earlier failed
    /// sync is reported.
    ///
    /// Throws `EPERM` if the descriptor can write and the file was refused the class that its
    /// copying program asked for. That program must not take the copy for an equal of the original,
    /// which mv(1) would then remove.
    public func flush(_ handle: HandleID, _ context: WorkerContext) throws(Errno) {
        let handle = handle.object(as: FileHandle.self)
        try reportSyncFailure(handle)
        if handle.flags & O_ACCMODE != O_RDONLY, handle.node.classes.refused.value != nil {
            throw .notPermitted
        }
    }

    private func reportSyncFailure(_ handle: FileHandle) throws(Errno) {
        let file = handle.file
        let failures = file.syncs.failures
        guard
            handle.reportedSyncFailures.exchange(failures, ordering: .acquiringAndReleasing)
                != failures
        else { return }
        throw file.syncs.lastFailure
    }

    /// Makes durable the file's data, header and size, and each of its names not yet synced, up to
    /// the root.
    public func fsync(
        _ handle: HandleID, dataOnly: Bool, _ context: WorkerContext
    ) throws(Errno) {
        let handle = handle.object(as: FileHandle.self)
        let file = handle.file
        settle(file)
        noteStoreFailure(file)
        let fileFailures = file.syncs.failures
        let failures = durability.syncFailures
        do throws(Errno) {
            if file.syncs.mendedFailures.value != failures || file.published.hasUncutPages {
                try file.withWriteAccess { access throws(Errno) in
                    if file.syncs.mendedFailures.value != failures { try writeEndsAgain(access) }
                    // This sync promises the present size, so an unfinished cut must be made first.
                    if file.extent.hasUncutPages {
                        access.extent.cutIsDue()
                        try removeHint(access)
                    }
                }
            }
            try sync(file, dataOnly: dataOnly)
            if file.syncs.failures == fileFailures { file.syncs.mendedFailures.value = failures }
        } catch {
            // A sync that could not even be tried is reported as well.
            if file.syncs.failures == fileFailures { file.syncs.noteFailure(error) }
            report(.lost(path: path(of: file.node), reason: "fsync: \(error)"))
        }
        try syncNames(of: file.node)
        try reportSyncFailure(handle)
    }

    /// Makes each name of a node durable that was made since its directory was last synced, up to
    /// the root. A directory above may have been moved since this file was last synced.
    func syncNames(of node: Node) throws(Errno) {
        if node.notes.hasSeveralNames.value, try hasUnknownNames(node) {
            let made = node.nameSyncs.unsynced
            try durability.sync()
            if let made { node.nameSyncs.noteSynced(made) }
            return
        }
        var waiting = [node]
        // Visits each directory once, even if it holds several names of the file, or lies above
        // itself (moved in the backing store by another program).
        var seen: Set<ObjectIdentifier> = []
        while let node = waiting.popLast() {
            let made = node.nameSyncs.unsynced
            var synced: Set<ObjectIdentifier> = []
            for link in node.allLinks {
                let parent = ObjectIdentifier(link.parent)
                if made != nil, synced.insert(parent).inserted {
                    try storage.fsync(try backing.directoryDescriptor(of: link.parent).rawValue)
                }
                if link.parent !== root, seen.insert(parent).inserted {
                    waiting.append(link.parent)
                }
            }
            if let made { node.nameSyncs.noteSynced(made) }
        }
    }

    /// Whether the file has names in directories that the volume does not know, and some name may
    /// not be durable. The kernel forgot those names or never looked them up.
    private func hasUnknownNames(_ node: Node) throws(Errno) -> Bool {
        guard
            durability.unsynced.hasNames
        else { return false }
        return Int(try backing.status(of: node).st_nlink) > node.allLinks.count
    }

    /// Releases a handle of `open` or `create`.
    public func release(_ handle: HandleID, _ context: WorkerContext) {
        end(handle.object(as: FileHandle.self), context)
        handle.releaseObject(as: FileHandle.self)
    }

    // MARK: Space

    /// Allocates space or makes holes; `mode` as in fallocate(2). The kernel does not say whether
    /// set-ID bits are to go: the caller's capabilities decide.
    public func allocate(
        _ handle: HandleID, mode: Int32, offsetBytes: UInt64, lengthBytes: UInt64, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let file = handle.object(as: FileHandle.self).file
        if file.notes.setIDBits != 0, !caller.keepsSetIDBits {
            try dropPrivilegesAndTell(file, caller)
        }
        try allocate(
            file, mode: mode, offsetBytes: offsetBytes, lengthBytes: lengthBytes, caller: caller,
            context)
    }

    private func allocate(
        _ file: OpenFile, mode: Int32, offsetBytes: UInt64, lengthBytes: UInt64, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        guard lengthBytes > 0 else { throw .invalidArgument }
        guard offsetBytes <= UInt64(PageLayout.maximumSizeBytes),
            lengthBytes <= UInt64(PageLayout.maximumSizeBytes) - offsetBytes
        else { throw .fileTooLarge }
        let start = Int(offsetBytes)
        let end = start + Int(lengthBytes)
        let keepsSize = mode & FALLOC_FL_KEEP_SIZE != 0
        try file.withWriteAccess { access throws(Errno) in
            defer { context.excuses.forget() }
            try askGate(file, .allocate, caller, context)
            switch mode & ~FALLOC_FL_KEEP_SIZE {
            case 0:
                if !keepsSize, end > file.sizeBytes {
                    try extend(access, to: end, .allocate, caller, context)
                }
                // Allocates space for pages to come. Space beyond the last page is never part of
                // the file.
                let firstPage = layout.page(at: start)
                let pages = layout.page(at: end - 1) - firstPage + 1
                if file.sizeBytes > 0 {
                    try storage.fallocate(
                        file.descriptor, mode: FALLOC_FL_KEEP_SIZE,
                        offsetBytes: firstPage * layout.pageBytes,
                        lengthBytes: pages * layout.pageBytes)
                }
            case FALLOC_FL_PUNCH_HOLE:
                guard keepsSize else { throw .notSupported }
                try zero(access, from: start, to: end, caller, context)
            case FALLOC_FL_ZERO_RANGE:
                let oldSize = file.sizeBytes
                try zero(access, from: start, to: min(end, oldSize), caller, context)
                if !keepsSize, end > oldSize {
                    try extend(access, to: end, .allocate, caller, context)
                }
            default:
                throw .notSupported
            }
        }
    }

    /// Finds the next data or hole, lseek(2). `whence`: `SEEK_DATA` or `SEEK_HOLE`. Throws `ENXIO`
    /// beyond the end.
    public func seek(
        _ handle: HandleID, offsetBytes: UInt64, whence: Int32, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> UInt64 {
        let file = handle.object(as: FileHandle.self).file
        return try file.withReadLock { () throws(Errno) in
            try askGate(file, .seek, caller, context)
            let offset = Int(clamping: offsetBytes)
            let size = file.sizeBytes
            guard offset < size else { throw Errno(rawValue: ENXIO) }
            guard file.header?.isSparse == true else {
                return UInt64(whence == SEEK_DATA ? offset : size)
            }
            // A page that was accepted into a hole at a lock is data, although the backing store
            // lacks it yet.
            settle(file)
            return UInt64(
                whence == SEEK_DATA
                    ? try nextData(file, offset) : try nextHole(file, offset))
        }
    }

    /// Granularity of holes in bytes, as in ext4: whole blocks of `st_blksize`, stat(2), while
    /// pages begin anywhere. So a program that works in blocks never takes data for part of a hole.
    private static let holeBytes = 4096

    /// Returns the start of the first page from `page` on for which the backing store has data, or
    /// else of the last page.
    private func nextDataStart(_ file: OpenFile, _ page: Int) throws(Errno) -> Int {
        let lastPage = layout.page(at: file.sizeBytes - 1)
        let found = try storage.lseek(file.descriptor, page * layout.pageBytes, SEEK_DATA)
        return layout.start(ofPage: min(found / layout.pageBytes, lastPage))
    }

    private func nextData(_ file: OpenFile, _ offset: Int) throws(Errno) -> Int {
        let block = offset & ~(Volume.holeBytes - 1)
        let start = try nextDataStart(file, layout.page(at: block))
        return max(offset, start & ~(Volume.holeBytes - 1))
    }

    private func nextHole(_ file: OpenFile, _ offset: Int) throws(Errno) -> Int {
        let size = file.sizeBytes
        let lastPage = layout.page(at: size - 1)
        let block = offset & ~(Volume.holeBytes - 1)
        var page = layout.page(at: block)
        // There may be any number of holes smaller than a block. The answer that no hole follows is
        // never wrong.
        for _ in 0..<Volume.mostSmallHoles {
            let found = try storage.lseek(file.descriptor, page * layout.pageBytes, SEEK_HOLE)
            let hole = (found + layout.pageBytes - 1) / layout.pageBytes
            if hole >= lastPage { break }
            let start =
                (layout.start(ofPage: hole) + Volume.holeBytes - 1) & ~(Volume.holeBytes - 1)
            let first = max(start, block)
            let end = try nextDataStart(file, hole)
            if first + Volume.holeBytes <= end { return max(offset, first) }
            page = layout.page(at: end)
        }
        return size
    }

    private static let mostSmallHoles = 1000
}
