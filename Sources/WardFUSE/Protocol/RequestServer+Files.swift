import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Requests about open files and directories.
extension RequestServer {
    func open(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_open_in.self)
        let flags = Int32(bitPattern: request.flags)
        let file = try volume.open(
            call.node, flags: flags,
            dropPrivilegeBits: request.open_flags & FUSE_OPEN_KILL_SUIDGID != 0,
            caller: call.caller, context)
        if !send(openReply(file), call) { volume.release(file.handle, context) }
    }

    func create(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_create_in.self)
        let name = try call.body.takeName()
        let flags = Int32(bitPattern: request.flags)
        let created = try volume.create(
            call.node, name, mode: request.mode, umask: request.umask, flags: flags,
            dropPrivilegeBits: request.open_flags & FUSE_OPEN_KILL_SUIDGID != 0,
            caller: call.caller, context)
        sendCreated(created, call)
    }

    /// The name in TMPFILE's request means nothing.
    func createUnnamed(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_create_in.self)
        let flags = Int32(bitPattern: request.flags)
        let created = try volume.createUnnamed(
            call.node, mode: request.mode, umask: request.umask, flags: flags, caller: call.caller,
            context)
        sendCreated(created, call)
    }

    func read(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_read_in.self)
        let count = min(Int(request.size), WorkerContext.maximumTransferBytes)
        let bytes = try volume.read(
            request.fh, offsetBytes: request.offset, count: count, caller: call.caller,
            into: call.channel.contentTarget, context)
        send(bytes, call)
    }

    func write(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_write_in.self)
        let data = try call.body.takeBytes(request.size)
        var flags: WriteFlags = []
        if request.write_flags & FUSE_WRITE_CACHE != 0 { flags.insert(.fromPageCache) }
        if request.write_flags & FUSE_WRITE_KILL_SUIDGID != 0 { flags.insert(.dropPrivilegeBits) }
        try volume.write(
            request.fh, offsetBytes: request.offset, data, flags: flags, caller: call.caller,
            context)
        send(fuse_write_out(size: request.size, padding: 0), call)
    }

    func flush(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_flush_in.self)
        try volume.flush(request.fh, context)
        call.succeed()
    }

    func release(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_release_in.self)
        volume.release(request.fh, context)
        call.succeed()
    }

    func allocate(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_fallocate_in.self)
        try volume.allocate(
            request.fh, mode: Int32(bitPattern: request.mode), offsetBytes: request.offset,
            lengthBytes: request.length, caller: call.caller, context)
        call.succeed()
    }

    func seek(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_lseek_in.self)
        let offset = try volume.seek(
            request.fh, offsetBytes: request.offset, whence: Int32(bitPattern: request.whence),
            caller: call.caller, context)
        send(fuse_lseek_out(offset: offset), call)
    }

    // MARK: Directories

    func openDirectory(_ call: inout Call<Channel>) throws(Errno) {
        let handle = try volume.openDirectory(call.node, context)
        // The kernel may keep a listing only where offsets mean the same to every handle (decision
        // 0062). A program that began in a kept listing is sent back here when a name is removed.
        // It goes on at an offset that another handle gave.
        let flags: UInt32 =
            policy.keepsContent && volume.keepsListing(of: call.node)
            ? FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE : 0
        if !send(fuse_open_out(fh: handle, open_flags: flags, backing_id: 0), call) {
            volume.releaseDirectory(handle, context)
        }
    }

    func readDirectory(_ call: inout Call<Channel>, lookup: Bool) throws(Errno) {
        let request = try call.body.take(fuse_read_in.self)
        let start = MemoryLayout<fuse_out_header>.size
        let capacity = min(Int(request.size), RequestServer.listingBytes)
        var packer = DirectoryPacker(
            UnsafeMutableRawBufferPointer(rebasing: reply[start..<(start &+ capacity)]),
            withEntries: lookup, policy)
        do throws(Errno) {
            try volume.readDirectory(
                request.fh, offset: request.offset, lookup: lookup, into: &packer, context)
        } catch {
            // Look-ups that are packed already are counted, so they must reach the kernel. The next
            // request gets the error.
            if packer.count == 0 { throw error }
        }
        sendReply(packer.count, call)
    }

    func releaseDirectory(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_release_in.self)
        volume.releaseDirectory(request.fh, context)
        call.succeed()
    }

    // MARK: Syncing

    func fsync(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_fsync_in.self)
        let dataOnly = request.fsync_flags & FUSE_FSYNC_FDATASYNC != 0
        submit(.file(request.fh, dataOnly: dataOnly), call)
    }

    func fsyncDirectory(_ call: inout Call<Channel>) throws(Errno) {
        let request = try call.body.take(fuse_fsync_in.self)
        let dataOnly = request.fsync_flags & FUSE_FSYNC_FDATASYNC != 0
        submit(.directory(request.fh, dataOnly: dataOnly), call)
    }

    func syncEverything(_ call: inout Call<Channel>) {
        submit(.everything, call)
    }

    func submit(_ kind: SyncJob<Channel>.Kind, _ call: Call<Channel>) {
        willSync()
        syncs.submit(SyncJob(kind: kind, unique: call.unique, channel: call.channel), context)
    }

    // MARK: Replies

    private func openReply(_ file: OpenedFile) -> fuse_open_out {
        var open: UInt32 = 0
        if file.keepCache && policy.keepsContent { open |= FOPEN_KEEP_CACHE }
        // ward writes through: close(2) has nothing left to write, and fsync tells of a failed
        // sync. The kernel writes dirty mapped pages when the mapping ends (`fuse_vma_close`,
        // fs/fuse/file.c). So FLUSH, a request for each close, is saved.
        if !file.tellsAtClose { open |= FOPEN_NOFLUSH }
        return fuse_open_out(fh: file.handle, open_flags: open, backing_id: 0)
    }

    private func sendCreated(
        _ created: (entry: Entry, file: OpenedFile), _ call: Call<Channel>
    ) {
        let start = MemoryLayout<fuse_out_header>.size
        let entryBytes = MemoryLayout<fuse_entry_out>.size
        reply.storeBytes(
            of: fuse_entry_out(created.entry, policy), toByteOffset: start, as: fuse_entry_out.self)
        reply.storeBytes(
            of: openReply(created.file), toByteOffset: start &+ entryBytes,
            as: fuse_open_out.self)
        if !sendReply(entryBytes &+ MemoryLayout<fuse_open_out>.size, call) {
            volume.release(created.file.handle, context)
            volume.forget(created.entry.node, lookups: 1)
        }
    }
}
