import CWardLinux
import Glibc
import Synchronization
import WardSystem
import WardVolume

/// A file of ward's own in the mount's root, by which a helper sees whether the kernel drops pages.
/// No volume contains it, no listing shows it, and its name can't be guessed.
///
/// Concurrency: any thread; atomics, and a mutex for the name.
public final class ProbeFile: Sendable {
    /// The file's node. A node of the volume is the address of an object, or 1 for the root.
    public static let node: NodeID = 2
    /// Bytes of a name, which are also the file's content, again and again.
    public static let nameBytes = 44
    private static let namePrefix = Array(".ward-probe-".utf8)
    /// No file system gives this number to a file.
    private static let inode = UInt64(Int64.max)

    /// Bytes of one page of the kernel. The file has two pages.
    public static var pageBytes: Int { Int(getpagesize()) }

    private let name = Mutex<[UInt8]>([])
    private let isFound = Atomic(false)
    private let isReadable = Atomic(false)
    /// The number of names so far. The kernel takes the file under a new name for another file.
    private let generation = Atomic<UInt64>(0)

    /// Makes the file readable under a new name, and returns the name.
    public func show() -> [UInt8] {
        let digits = Array("0123456789abcdef".utf8)
        let random = SystemRandom.bytes(ProbeFile.nameBytes - ProbeFile.namePrefix.count)
        let new = ProbeFile.namePrefix + random.map { digits[Int($0 & 15)] }
        name.withLock { $0 = new }
        generation.add(1, ordering: .relaxed)
        isReadable.store(true, ordering: .sequentiallyConsistent)
        isFound.store(true, ordering: .sequentiallyConsistent)
        return new
    }

    /// Refuses reads from here on, as of a file whose class is closed.
    public func refuse() { isReadable.store(false, ordering: .sequentiallyConsistent) }

    /// Has no look-up find the file any more.
    public func hide() {
        refuse()
        isFound.store(false, ordering: .sequentiallyConsistent)
    }

    /// Whether a request is for this file and not for the volume.
    @inline(__always)
    func takes(_ request: Request) -> Bool {
        request.header.nodeid == ProbeFile.node
            || request.header.opcode == FUSE_LOOKUP.rawValue && request.header.nodeid == 1
                && isFound.load(ordering: .acquiring) && isNamed(by: request)
    }

    private func isNamed(by request: Request) -> Bool {
        var body = request.body
        guard let asked = try? body.takeName() else { return false }
        return name.withLock { asked.elementsEqual($0) }
    }

    // MARK: Answers

    /// The content of the range; nil where reads are refused.
    func content(from offset: Int, count: Int) -> [UInt8]? {
        guard isReadable.load(ordering: .sequentiallyConsistent) else { return nil }
        let end = min(offset + count, 2 * ProbeFile.pageBytes)
        let name = name.withLock { $0 }
        return (min(offset, end)..<end).map { name[$0 % ProbeFile.pageBytes % name.count] }
    }

    private var attributes: fuse_attr {
        var attributes = fuse_attr()
        attributes.ino = ProbeFile.inode
        attributes.size = UInt64(2 * ProbeFile.pageBytes)
        attributes.blocks = attributes.size / 512
        attributes.mode = S_IFREG | 0o400
        attributes.nlink = 1
        attributes.uid = geteuid()
        attributes.gid = getegid()
        attributes.blksize = UInt32(ProbeFile.pageBytes)
        return attributes
    }

    /// The answer to GETATTR. The kernel does not keep it.
    var attributesReply: fuse_attr_out {
        fuse_attr_out(attr_valid: 0, attr_valid_nsec: 0, dummy: 0, attr: attributes)
    }

    /// The answer to the look-up. The kernel does not keep the name.
    var entryReply: fuse_entry_out {
        fuse_entry_out(
            nodeid: ProbeFile.node, generation: generation.load(ordering: .relaxed),
            entry_valid: 0, attr_valid: 0, entry_valid_nsec: 0, attr_valid_nsec: 0,
            attr: attributes)
    }
}

/// Requests for the probe's file. They are not counted.
extension RequestServer {
    func serveProbe(_ request: Request, _ channel: Channel) {
        var call = Call(request, channel)
        switch fuse_opcode(rawValue: request.header.opcode) {
        case FUSE_LOOKUP: send(probe.entryReply, call)
        case FUSE_GETATTR: send(probe.attributesReply, call)
        case FUSE_OPEN: send(fuse_open_out(fh: 0, open_flags: FOPEN_NOFLUSH, backing_id: 0), call)
        case FUSE_READ: readProbe(&call)
        case FUSE_FLUSH, FUSE_RELEASE: call.succeed()
        // The kernel waits for no answer.
        case FUSE_FORGET: break
        case FUSE_GETXATTR, FUSE_LISTXATTR: channel.complete(call.unique, error: -ENODATA)
        default: channel.complete(call.unique, error: -EPERM)
        }
    }

    private func readProbe(_ call: inout Call<Channel>) {
        guard let request = try? call.body.take(fuse_read_in.self),
            let content = probe.content(
                from: Int(clamping: request.offset), count: Int(request.size))
        else { return call.channel.complete(call.unique, error: -EPERM) }
        content.withUnsafeBytes { send($0, call) }
    }
}
