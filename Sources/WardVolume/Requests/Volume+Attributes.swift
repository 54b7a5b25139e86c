import CWardLinux
import Glibc
import WardFormat
import WardSystem

// stat, chmod, chown, utimes, truncate.
extension Volume {
    /// Returns what stat(2) shows of a node. The kernel passes `handle` for lseek(2) and read(2)
    /// (`FUSE_GETATTR_FH`), not for fstat(2). With a handle, the class gate decides (row O4):
    /// throws `EPERM` where the class is closed.
    public func attributes(
        of id: NodeID, handle: HandleID?, caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Attributes {
        let node = node(id)
        if let file = node.file {
            if handle != nil {
                try askGate(file, .seek, caller, context)
            }
            showTimes(file)
        }
        return try attributes(of: node, try backing.status(of: node), context)
    }

    /// Prepares a file whose times are about to be shown. The first time, the size hint is put back
    /// now. The inode then stays the same until the `stat` after the last close: git compares the
    /// two.
    private func showTimes(_ file: OpenFile) {
        if file.published.needsHint, !file.published.hintWasShown {
            file.withWriteAccess { access in
                access.extent.hintShown()
                putHint(access)
            }
        }
        file.times.show()
    }

    func attributes(
        of node: Node, _ status: FileStatus, _ context: WorkerContext
    ) throws(Errno) -> Attributes {
        var result = Attributes()
        result.inode = UInt64(status.st_ino)
        result.blocks = UInt64(status.st_blocks)
        result.access = status.st_atim
        result.modification = status.st_mtim
        result.change = status.st_ctim
        result.mode = UInt32(try trueMode(of: node, status))
        result.linkCount = UInt32(truncatingIfNeeded: status.st_nlink)
        result.uid = status.st_uid
        result.gid = status.st_gid
        result.deviceMajor = ward_makedev_major(status.st_rdev)
        result.deviceMinor = ward_makedev_minor(status.st_rdev)
        result.blockBytes = 4096
        switch status.st_mode & S_IFMT {
        case S_IFREG:
            result.sizeBytes = UInt64(try size(of: node, status, context))
            if let protectionClass = node.protectionClass {
                result.mayBeCached = gate.classes.state(of: protectionClass) == .open
            }
        case S_IFLNK:
            result.sizeBytes = UInt64(linkTargetBytes(of: node, status))
        default:
            result.sizeBytes = UInt64(status.st_size)
        }
        return result
    }

    /// Returns the logical size in bytes: from the open file, from the size hint, or from the last
    /// page.
    private func size(
        of node: Node, _ status: FileStatus, _ context: WorkerContext
    ) throws(Errno) -> Int {
        if let file = node.file { return file.sizeBytes }
        if !durability.doubt.isOpen,
            let size = layout.size(fromBackingSize: Int(status.st_size))
        {
            return size
        }
        do throws(Errno) {
            let file = try acquire(node, context).file
            defer { release(file, context) }
            return file.sizeBytes
        } catch .ioError {
            // A damaged file still has a name, a mode and an owner.
            return layout.size(fromBackingSize: Int(status.st_size)) ?? 0
        }
    }

    /// Returns the mode as a program set it, also for nodes whose backing mode is marked.
    func trueMode(of node: Node, _ status: FileStatus) throws(Errno) -> mode_t {
        var status = status
        for _ in 1...Volume.mostLooks {
            guard BackingMode.isMarked(status.st_mode) else { return status.st_mode }
            let (record, after) = try backing.askingWithStatus(node) { place throws(Errno) in
                try modeRecord(at: place)
            }
            // A mode change writes the record before the mark, and removes the mark before the
            // record. So a missing record counts only if the inode did not change meanwhile.
            if record != nil || after.hasSameChange(as: status) {
                return BackingMode.trueMode(ofMarked: status.st_mode, record: record)
            }
            status = after
        }
        guard BackingMode.isMarked(status.st_mode) else { return status.st_mode }
        return BackingMode.trueMode(ofMarked: status.st_mode, record: nil)
    }

    /// How often `trueMode` reads an inode again that changed meanwhile. A faulty backing store may
    /// answer differently each time.
    static let mostLooks = 100

    private func modeRecord(at place: BackingPlace) throws(Errno) -> UInt16? {
        var value: UInt16 = 0
        do throws(Errno) {
            let count = try withUnsafeMutableBytes(of: &value) { buffer throws(Errno) in
                try place.getxattr(BackingMode.attributeName, in: storage, buffer)
            }
            return count == 2 ? UInt16(littleEndian: value) : nil
        } catch .noData, .notSupported {
            return nil
        } catch .outOfRange {
            return nil
        }
    }

    /// Gives an inode a true mode. `wasMarked`: whether its backing mode was marked before.
    func setMode(
        _ descriptor: Int32, _ mode: mode_t, isDirectory: Bool, wasMarked: Bool
    ) throws(Errno) {
        let backing = BackingMode(trueMode: mode, isDirectory: isDirectory)
        let isMarked = BackingMode.isMarked(backing.bits | (isDirectory ? S_IFDIR : S_IFREG))
        if backing.needsRecord || (wasMarked && isMarked) {
            // The record first: once the inode is marked, the record counts.
            var value = UInt16(mode & 0o7777).littleEndian
            try withUnsafeBytes(of: &value) { bytes throws(Errno) in
                try storage.setxattr(descriptor, BackingMode.attributeName, bytes, flags: 0)
            }
        } else if isMarked {
            try removeModeRecord(descriptor)
        }
        try storage.chmod(descriptor, backing.bits)
        if wasMarked, !isMarked { try removeModeRecord(descriptor) }
    }

    private func removeModeRecord(_ descriptor: Int32) throws(Errno) {
        do throws(Errno) {
            try storage.removexattr(descriptor, BackingMode.attributeName)
        } catch .noData, .notSupported {
        }
    }

    /// Changes mode, owner, size or times. Throws `EROFS` on a read-only mount, and `EPERM` where
    /// the class forbids a new size.
    public func setAttributes(
        of id: NodeID, handle: HandleID?, _ change: AttributeChange, caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) -> Attributes {
        if isReadOnly { throw .readOnlyFileSystem }
        let node = node(id)
        if let size = change.sizeBytes {
            try setSize(of: node, handle, Int(clamping: size), caller, context)
        }
        if change.mode != nil || change.uid != nil || change.gid != nil || change.dropPrivilegeBits
            || change.access != nil || change.modification != nil
        {
            try backing.withPathDescriptor(of: node) { descriptor throws(Errno) in
                try apply(change, to: node, descriptor, caller)
            }
            durability.dirt.noteChange()
        }
        return try attributes(of: node, try backing.status(of: node), context)
    }

    private func setSize(
        of node: Node, _ handle: HandleID?, _ size: Int, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard node.isRegular else { throw .invalidArgument }
        let file = try acquire(node, context).file
        defer { release(file, context) }
        if handle == nil {
            // A truncate by path counts as an open (row O6): a locked class B file refuses it, even
            // while other programs hold the file open.
            try mayOpen(file, .truncate, caller, context)
        }
        try file.withWriteAccess { access throws(Errno) in
            defer { context.excuses.forget() }
            try setSize(access, to: size, .truncate, caller, context)
            if size == 0 { node.cachedPages.exist.store(true, ordering: .relaxed) }
        }
    }

    private func apply(
        _ change: AttributeChange, to node: Node, _ descriptor: Int32, _ caller: Caller
    ) throws(Errno) {
        let setsTimes = change.access != nil || change.modification != nil
        let setsIDBits = mode_t(change.mode ?? 0) & (S_ISUID | S_ISGID) != 0
        if setsTimes || setsIDBits, let file = node.file {
            // First store the writes that were accepted at a lock, and the hint. Later they would
            // move the times, and clear set-ID bits where the daemon is not root.
            file.withWriteAccess { access in
                settle(file)
                access.extent.hintShown()
                putHint(access)
            }
        }
        let status = try storage.fstat(descriptor)
        let wasMarked = BackingMode.isMarked(status.st_mode)
        var mode: mode_t?
        if let wanted = change.mode { mode = mode_t(wanted) & 0o7777 }
        if change.uid != nil || change.gid != nil {
            let before = try trueMode(of: node, status)
            try storage.chown(
                descriptor, change.uid ?? uid_t.max, change.gid ?? gid_t.max)
            // chown(2) by an ordinary user clears set-ID bits in the backing mode, where they are
            // marks. `setMode` puts them back.
            if mode == nil {
                var kept = before & 0o7777
                if node.isRegular {
                    kept = Volume.withoutPrivilegeBits(kept) {
                        caller.isMember(of: status.st_gid) || caller.keepsSetIDBits
                    }
                }
                if wasMarked || kept != before & 0o7777 { mode = kept }
            }
        } else if change.dropPrivilegeBits, mode == nil, node.isRegular {
            let before = try trueMode(of: node, status) & 0o7777
            let kept = Volume.withoutPrivilegeBits(before) { caller.isMember(of: status.st_gid) }
            if kept != before { mode = kept }
        }
        if let mode {
            switch node.type {
            case S_IFREG, S_IFDIR:
                try setMode(
                    descriptor, mode, isDirectory: node.isDirectory, wasMarked: wasMarked)
                node.file?.notes.setIDBits = mode
            case S_IFLNK: throw .notSupported
            default: try storage.chmod(descriptor, mode)
            }
        }
        if setsTimes {
            node.file?.times.show()
            try storage.setTimes(
                descriptor, access: Volume.time(change.access),
                modification: Volume.time(change.modification))
        }
    }

    /// Clears set-user-ID, and set-group-ID too, as the kernel's `setattr_should_drop_suidgid`
    /// (fs/attr.c) does. Set-group-ID stays if the group may not execute and the caller is a member
    /// of it. `isMember` is called only then.
    static func withoutPrivilegeBits(_ mode: mode_t, isMember: () -> Bool) -> mode_t {
        var mode = mode & ~S_ISUID
        if mode & S_ISGID != 0, mode & S_IXGRP != 0 || !isMember() { mode &= ~S_ISGID }
        return mode
    }

    // MARK: Times and mappings

    /// How long a change of times waits until the kernel has written mapped pages back.
    private static let writeBackPatience = Duration.seconds(10)

    /// Returns true if times of a file are about to be set while the kernel may hold unwritten
    /// stores to a mapping of it. Those stores came first, so they must not move the times later.
    ///
    /// The caller then calls `writeBack` before the change. That waits for the kernel, which may
    /// send requests meanwhile. So no thread may call it that must serve those requests.
    public func mustWriteBack(before change: AttributeChange, of id: NodeID) -> Bool {
        guard change.modification != nil, change.sizeBytes == nil, let file = node(id).file else {
            return false
        }
        return file.uses.mappableHandles.load(ordering: .relaxed) > 0
            && gate.classes.state(of: file.protectionClass) == .open
    }

    /// Makes the kernel write the node's mapped pages back and drop them. A later store to the
    /// mapping faults its page in again and is written back later, too.
    ///
    /// No write(2) is under way, which a drop could harm (`PageDrops`). The kernel holds the
    /// inode's lock while it waits for this answer (`notify_change`, fs/attr.c).
    public func writeBack(_ id: NodeID) {
        let node = node(id)
        guard let kernel else { return }
        let end = SystemClock.monotonic() + Volume.writeBackPatience
        let done = FutexWord()
        background.add {
            kernel.invalidateContent(of: node.id)
            done.increment()
            done.wakeAll()
        }
        while done.value == 0, SystemClock.monotonic() < end {
            done.wait(while: 0, nanoseconds: 100_000_000)
        }
    }

    private static func time(_ time: AttributeChange.Time?) -> timespec {
        switch time {
        case .none: timespec(tv_sec: 0, tv_nsec: ward_utime_omit())
        case .now: timespec(tv_sec: 0, tv_nsec: ward_utime_now())
        case .at(let value): value
        }
    }
}

extension FileStatus {
    /// Whether the inode is unchanged since `earlier`, by mode and change time.
    fileprivate func hasSameChange(as earlier: FileStatus) -> Bool {
        st_mode == earlier.st_mode && st_ctim.tv_sec == earlier.st_ctim.tv_sec
            && st_ctim.tv_nsec == earlier.st_ctim.tv_nsec
    }
}
