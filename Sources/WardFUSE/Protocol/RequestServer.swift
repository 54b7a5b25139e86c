import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Serves the requests of one worker thread: each opcode becomes a call to the volume and a reply.
final class RequestServer<Channel: ReplyChannel> {
    /// The largest directory listing in one reply, bytes.
    static var listingBytes: Int { 128 << 10 }

    let volume: Volume
    let context: WorkerContext
    let policy: CachePolicy
    let hasExtendedSetxattr: Bool
    let syncs: SyncPool<Channel>
    private let counts: RequestCounts
    let probe: ProbeFile
    /// Called before work that may take as long as a disk does and needs nothing of the request's
    /// buffers.
    var willSync: () -> Void = {}
    /// The buffer for replies: the header, then structures or a listing.
    let reply: UnsafeMutableRawBufferPointer

    init(
        _ volume: Volume, _ context: WorkerContext, _ policy: CachePolicy,
        hasExtendedSetxattr: Bool, _ syncs: SyncPool<Channel>,
        _ counts: RequestCounts = RequestCounts(), _ probe: ProbeFile = ProbeFile()
    ) {
        self.volume = volume
        self.context = context
        self.policy = policy
        self.hasExtendedSetxattr = hasExtendedSetxattr
        self.syncs = syncs
        self.counts = counts
        self.probe = probe
        reply = .allocate(byteCount: RequestServer.listingBytes + 4096, alignment: 4096)
    }

    deinit {
        reply.deallocate()
    }

    /// Serves one request. When this returns it is answered, or handed to `syncs`.
    func serve(_ request: Request, _ channel: Channel) {
        if probe.takes(request) { return serveProbe(request, channel) }
        counts.note(request.header.opcode)
        do throws(Errno) {
            try volume.withDescriptors(context) { () throws(Errno) in
                if request.takesSpace {
                    try volume.withSpace(context) { () throws(Errno) in
                        var call = Call(request, channel)
                        try dispatch(&call)
                    }
                } else {
                    var call = Call(request, channel)
                    try dispatch(&call)
                }
            }
        } catch {
            fail(request, error, channel)
        }
        context.finishRequest()
    }

    /// Replies with the error. If a handle's reads are refused again and again, the reply comes
    /// later each time.
    private func fail(_ request: Request, _ error: Errno, _ channel: Channel) {
        let number = Wire.errorNumber(error)
        var body = request.body
        guard error == .notPermitted, request.header.opcode == FUSE_READ.rawValue,
            let read = try? body.take(fuse_read_in.self)
        else { return channel.complete(request.header.unique, error: number) }
        let delay = volume.refusedReadDelay(read.fh)
        guard delay > 0 else { return channel.complete(request.header.unique, error: number) }
        // Hold nothing of the request meanwhile, and see that other workers serve.
        context.finishRequest()
        willSync()
        syncs.delayed.complete(request.header.unique, error: number, channel, after: delay)
    }

    private func dispatch(_ call: inout Call<Channel>) throws(Errno) {
        switch fuse_opcode(rawValue: call.header.opcode) {
        case FUSE_READ: try read(&call)
        case FUSE_WRITE: try write(&call)
        case FUSE_LOOKUP: try lookup(&call)
        case FUSE_GETATTR: try getAttributes(&call)
        case FUSE_SETATTR: try setAttributes(&call)
        case FUSE_OPEN: try open(&call)
        case FUSE_RELEASE: try release(&call)
        case FUSE_FLUSH: try flush(&call)
        case FUSE_CREATE: try create(&call)
        case FUSE_FORGET: forget(&call)
        case FUSE_BATCH_FORGET: forgetBatch(&call)
        case FUSE_FSYNC: try fsync(&call)
        case FUSE_GETXATTR: try getExtendedAttribute(&call)
        case FUSE_LISTXATTR: try listExtendedAttributes(&call)
        case FUSE_SETXATTR: try setExtendedAttribute(&call)
        case FUSE_REMOVEXATTR: try removeExtendedAttribute(&call)
        case FUSE_OPENDIR: try openDirectory(&call)
        case FUSE_READDIR: try readDirectory(&call, lookup: false)
        case FUSE_READDIRPLUS: try readDirectory(&call, lookup: true)
        case FUSE_RELEASEDIR: try releaseDirectory(&call)
        case FUSE_FSYNCDIR: try fsyncDirectory(&call)
        case FUSE_UNLINK: try unlink(&call)
        case FUSE_RMDIR: try removeDirectory(&call)
        case FUSE_RENAME: try rename(&call, withFlags: false)
        case FUSE_RENAME2: try rename(&call, withFlags: true)
        case FUSE_LINK: try link(&call)
        case FUSE_SYMLINK: try makeSymbolicLink(&call)
        case FUSE_READLINK: try readLink(&call)
        case FUSE_MKDIR: try makeDirectory(&call)
        case FUSE_MKNOD: try makeNode(&call)
        case FUSE_TMPFILE: try createUnnamed(&call)
        case FUSE_FALLOCATE: try allocate(&call)
        case FUSE_LSEEK: try seek(&call)
        case FUSE_STATFS: try fileSystemStatus(&call)
        case FUSE_SYNCFS: syncEverything(&call)
        case FUSE_DESTROY: call.succeed()
        // An interrupted request is answered soon anyway.
        case FUSE_INTERRUPT, FUSE_NOTIFY_REPLY: break
        case FUSE_IOCTL: call.channel.complete(call.unique, error: -ENOTTY)
        // ENOSYS tells the kernel not to ask again. It checks ACCESS, copies (COPY_FILE_RANGE) and
        // keeps locks itself. POLL is always ready, GETATTR does for STATX, and there are no BMAP
        // and no mappings.
        default: call.channel.complete(call.unique, error: -ENOSYS)
        }
    }

    // MARK: Replying

    /// Replies with one structure. False: the kernel did not take it.
    @inline(__always) @discardableResult
    func send<T: BitwiseCopyable>(_ value: T, _ call: Call<Channel>) -> Bool {
        reply.storeBytes(of: value, toByteOffset: MemoryLayout<fuse_out_header>.size, as: T.self)
        return sendReply(MemoryLayout<T>.size, call)
    }

    /// Replies with the first `count` bytes behind the header of the reply buffer.
    @inline(__always) @discardableResult
    func sendReply(_ count: Int, _ call: Call<Channel>) -> Bool {
        let total = MemoryLayout<fuse_out_header>.size &+ count
        reply.storeBytes(
            of: fuse_out_header(
                len: UInt32(truncatingIfNeeded: total), error: 0, unique: call.unique),
            as: fuse_out_header.self)
        return call.channel.send(UnsafeRawBufferPointer(rebasing: reply.prefix(total)))
    }

    /// Replies with bytes outside the reply buffer.
    @inline(__always)
    func send(_ bytes: UnsafeRawBufferPointer, _ call: Call<Channel>) {
        guard !bytes.isEmpty else { return call.succeed() }
        let headBytes = MemoryLayout<fuse_out_header>.size
        reply.storeBytes(
            of: fuse_out_header(
                len: UInt32(truncatingIfNeeded: headBytes &+ bytes.count), error: 0,
                unique: call.unique),
            as: fuse_out_header.self)
        _ = call.channel.send(UnsafeRawBufferPointer(rebasing: reply.prefix(headBytes)), bytes)
    }
}

/// A request that is being served.
struct Call<Channel: ReplyChannel> {
    let header: fuse_in_header
    var body: RequestReader
    let channel: Channel

    @inline(__always)
    init(_ request: Request, _ channel: Channel) {
        header = request.header
        body = request.body
        self.channel = channel
    }

    var unique: UInt64 { header.unique }
    var node: NodeID { header.nodeid }
    var caller: Caller { Caller(uid: header.uid, gid: header.gid, pid: header.pid) }

    /// Replies with success, without content.
    func succeed() {
        channel.complete(unique)
    }
}
