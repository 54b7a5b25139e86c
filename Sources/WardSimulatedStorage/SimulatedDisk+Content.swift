import CWardLinux
import Glibc
import WardSystem
import WardVolume

// Opening, reading, writing, flushing and `stat`.
extension SimulatedDisk {
    // MARK: Opening

    package func openat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, mode: mode_t
    ) throws(Errno) -> Int32 {
        let isTemporary = flags & 0o20_000_000 != 0  // __O_TMPFILE
        let mayChange = isTemporary || flags & (O_CREAT | O_TRUNC) != 0
        return mayChange
            ? try change { (state) throws(Errno) -> Int32 in
                try open(directory, path, flags, mode, isTemporary, &state)
            }
            : try look { (state) throws(Errno) -> Int32 in
                try open(directory, path, flags, mode, isTemporary, &state)
            }
    }

    func open(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32, _ mode: mode_t,
        _ isTemporary: Bool, _ state: inout State
    ) throws(Errno) -> Int32 {
        var identity = try find(directory, path, state)
        if isTemporary {
            identity = state.image.makeInode(S_IFREG | mode & 0o7777)
        } else if let found = identity {
            if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL { throw .fileExists }
            let type = state.image.inodes[found]!.mode & S_IFMT
            let isPath = flags & 0o10_000_000 != 0
            if type == S_IFLNK, !isPath { throw .tooManySymbolicLinkLevels }
            if flags & O_DIRECTORY != 0, type != S_IFDIR { throw .notDirectory }
            if type == S_IFDIR, flags & O_ACCMODE != O_RDONLY { throw .isDirectory }
            if flags & O_TRUNC != 0, state.image.inodes[found]!.content.size > 0 {
                state.image.change(found, .truncate(0))
            }
        } else {
            guard flags & O_CREAT != 0 else { throw .noSuchFileOrDirectory }
            let (parent, name) = try vacant(directory, path, state)
            identity = state.image.makeInode(S_IFREG | mode & 0o7777)
            state.image.change([
                DiskImage.EntryChange(directory: parent, name: name, new: identity)
            ])
        }
        let descriptor = state.nextDescriptor
        state.nextDescriptor += 1
        state.descriptors[descriptor] = Description(
            identity: identity!, isWritable: flags & O_ACCMODE != O_RDONLY)
        return descriptor
    }

    package func close(_ descriptor: Int32) {
        state.withLock { state in
            guard let old = state.descriptors.removeValue(forKey: descriptor) else { return }
            SimulatedDisk.forgetIfUnused(old.identity, &state)
        }
    }

    // MARK: Content

    static func writable(
        _ descriptor: Int32, _ state: borrowing State
    ) throws(Errno) -> UInt64 {
        guard let found = state.descriptors[descriptor], found.isWritable else {
            throw .badFileDescriptor
        }
        return found.identity
    }

    package func pread(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            guard let found = state.descriptors[descriptor] else { throw .badFileDescriptor }
            let size = state.image.inodes[found.identity]!.content.size
            let end = min(size, offsetBytes + count)
            guard offsetBytes < end else { return 0 }
            let blocks = state.image.inodes[found.identity]!.content.blocks
            var at = offsetBytes
            while at < end {
                let index = at / DiskImage.blockBytes
                let start = index * DiskImage.blockBytes
                let until = min(end, start + DiskImage.blockBytes)
                let target = buffer + (at - offsetBytes)
                if index < blocks.count, let block = blocks[index] {
                    block.bytes.withUnsafeBytes {
                        target.copyMemory(
                            from: $0.baseAddress! + (at - start), byteCount: until - at)
                    }
                } else {
                    memset(target, 0, until - at)
                }
                at = until
            }
            return end - offsetBytes
        }
    }

    package func pwrite(
        _ descriptor: Int32, _ buffer: UnsafeRawPointer, _ count: Int, at offsetBytes: Int
    ) throws(Errno) {
        func write(_ count: Int, _ state: inout State) throws(Errno) {
            let identity = try SimulatedDisk.writable(descriptor, state)
            state.image.write(
                identity, UnsafeRawBufferPointer(start: buffer, count: count), at: offsetBytes)
        }
        try change(atFault: { state in
            // A write to a full disk stores whole blocks of the file before it fails.
            let part = (offsetBytes + count / 2) / DiskImage.blockBytes * DiskImage.blockBytes
            if part > offsetBytes { try? write(part - offsetBytes, &state) }
        }) { (state) throws(Errno) -> Void in try write(count, &state) }
    }

    package func ftruncate(_ descriptor: Int32, _ sizeBytes: Int) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let identity = try SimulatedDisk.writable(descriptor, state)
            guard sizeBytes >= 0 else { throw .invalidArgument }
            state.image.change(identity, .truncate(sizeBytes))
        }
    }

    package func fallocate(
        _ descriptor: Int32, mode: Int32, offsetBytes: Int, lengthBytes: Int
    ) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let identity = try SimulatedDisk.writable(descriptor, state)
            guard offsetBytes >= 0, lengthBytes > 0 else { throw .invalidArgument }
            switch mode {
            case Int32(FALLOC_FL_KEEP_SIZE): state.image.change(identity, .nothing)
            case Int32(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE):
                state.image.change(identity, .punch(offsetBytes, lengthBytes))
            default: throw .notSupported
            }
        }
    }

    package func lseek(
        _ descriptor: Int32, _ offsetBytes: Int, _ whence: Int32
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            let content = try SimulatedDisk.inode(descriptor, state).content
            guard whence == SEEK_DATA || whence == SEEK_HOLE else { throw .invalidArgument }
            guard offsetBytes >= 0, offsetBytes < content.size else {
                throw Errno(rawValue: ENXIO)
            }
            var at = offsetBytes
            while at < content.size {
                let index = at / DiskImage.blockBytes
                let isData = index < content.blocks.count && content.blocks[index] != nil
                if isData == (whence == SEEK_DATA) { return at }
                at = (index + 1) * DiskImage.blockBytes
            }
            if whence == SEEK_DATA { throw Errno(rawValue: ENXIO) }
            return content.size
        }
    }

    package func fsync(_ descriptor: Int32) throws(Errno) {
        try sync(descriptor, dataOnly: false)
    }

    package func fdatasync(_ descriptor: Int32) throws(Errno) {
        try sync(descriptor, dataOnly: true)
    }

    private func sync(
        _ descriptor: Int32, dataOnly: Bool
    ) throws(Errno) {
        try change(
            dataOnly ? "fdatasync(_:)" : "fsync(_:)",
            atFailedSync: { state, dropped in
                guard let identity = state.descriptors[descriptor]?.identity else { return }
                state.image.dropUnwritten(identity, dropped)
            }
        ) { (state) throws(Errno) -> Void in
            let identity = try SimulatedDisk.inode(descriptor, state).identity
            state.image.sync(identity, dataOnly: dataOnly)
        }
    }

    package func syncfs(_ descriptor: Int32) throws(Errno) {
        try change(atFailedSync: { state, dropped in
            for identity in state.image.events.keys.sorted() {
                state.image.dropUnwritten(identity, dropped)
            }
        }) { (state) throws(Errno) -> Void in
            _ = try SimulatedDisk.inode(descriptor, state)
            state.image.syncAll()
        }
    }

    package func forgetCached(_ descriptor: Int32) {
        state.withLock { state in
            guard let identity = state.descriptors[descriptor]?.identity else { return }
            state.image.forgetCached(identity)
        }
    }

    // MARK: Status

    static func status(_ inode: DiskImage.Inode) -> FileStatus {
        var status = FileStatus()
        status.st_dev = 0x5157
        status.st_ino = ino_t(inode.number)
        status.st_mode = inode.mode
        status.st_nlink = nlink_t(inode.links)
        status.st_uid = inode.uid
        status.st_gid = inode.gid
        status.st_rdev = inode.device
        status.st_size = off_t(
            inode.mode & S_IFMT == S_IFLNK ? inode.target.count : inode.content.size)
        status.st_blksize = blksize_t(DiskImage.blockBytes)
        status.st_blocks = blkcnt_t(inode.content.blocks.count { $0 != nil } * 8)
        status.st_atim = inode.times.access
        status.st_mtim = inode.times.modification
        status.st_ctim = inode.times.change
        return status
    }

    package func fstat(_ descriptor: Int32) throws(Errno) -> FileStatus {
        try look { (state) throws(Errno) -> FileStatus in
            SimulatedDisk.status(try SimulatedDisk.inode(descriptor, state))
        }
    }

    package func fstatat(
        _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) -> FileStatus {
        try look { (state) throws(Errno) -> FileStatus in
            SimulatedDisk.status(try existing(directory, path, state))
        }
    }

    /// Whether changes reach the disk in order (`DiskKind.Order.journal`).
    package func ordersChanges(_ descriptor: Int32) -> Bool {
        state.withLock { $0.image.kind.order == .journal }
    }

    /// Returns the simulated clock in nanoseconds. Only changes move the clock, so a run does not
    /// depend on real time.
    package func coarseNanoseconds() -> UInt64 {
        state.withLock { UInt64($0.image.clock) * 1_000_000_000 }
    }

    package func fstatvfs(_ descriptor: Int32) throws(Errno) -> FileSystemStatus {
        var status = FileSystemStatus()
        status.f_bsize = UInt(DiskImage.blockBytes)
        status.f_frsize = UInt(DiskImage.blockBytes)
        status.f_blocks = 1 << 20
        status.f_bfree = 1 << 19
        status.f_bavail = 1 << 19
        status.f_namemax = 255
        return status
    }
}
