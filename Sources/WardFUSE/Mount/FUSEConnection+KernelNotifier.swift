import CWardLinux
import Glibc
import WardSystem
import WardVolume

/// Messages that tell the kernel to forget.
///
/// The kernel answers ENOENT for a node or name that it does not know, which is as good. Requests
/// must be served meanwhile: the kernel may send writes before it drops pages.
extension FUSEConnection: KernelNotifier {
    public func invalidateContent(of node: NodeID) {
        // Offset 0, length 0: to the end.
        notify(fuse_notify_inval_inode_out(ino: node, off: 0, len: 0))
    }

    public func invalidateAttributes(of node: NodeID) {
        notify(fuse_notify_inval_inode_out(ino: node, off: -1, len: 0))
    }

    public func invalidateName(_ name: [UInt8], in parent: NodeID) {
        var message = [UInt8]()
        let headerBytes = MemoryLayout<fuse_out_header>.size
        let structureBytes = MemoryLayout<fuse_notify_inval_entry_out>.size
        let total = headerBytes + structureBytes + name.count + 1
        message.reserveCapacity(total)
        let header = fuse_out_header(
            len: UInt32(total), error: Int32(FUSE_NOTIFY_INVAL_ENTRY.rawValue), unique: 0)
        let structure = fuse_notify_inval_entry_out(
            parent: parent, namelen: UInt32(name.count), flags: 0)
        withUnsafeBytes(of: header) { message.append(contentsOf: $0) }
        withUnsafeBytes(of: structure) { message.append(contentsOf: $0) }
        message.append(contentsOf: name)
        message.append(0)
        _ = message.withUnsafeBytes { DeviceChannel(descriptor: share.device).send($0) }
        // The kernel may keep a listing whose names it never looked up.
        invalidateContent(of: parent)
    }

    /// Kernels before 6.16 write mapped pages back from copies (fs/fuse/file.c,
    /// `fuse_writepages_fill`). The page itself is clean at once, and an invalidation drops it
    /// without waiting. Its WRITE may still be in the kernel's queue. A WRITE that comes after the
    /// gate is closed would be lost, so the gate waits until the kernel has no request left.
    public func awaitWriteBacks(until end: Duration) {
        guard negotiation.minorVersion < Negotiation.minorVersionOfWriteBackInPlace else { return }
        repeat {
            if requestsWaiting == 0 { return }
            usleep(500)
        } while SystemClock.monotonic() < end
    }

    private func notify(_ structure: fuse_notify_inval_inode_out) {
        let total =
            MemoryLayout<fuse_out_header>.size + MemoryLayout<fuse_notify_inval_inode_out>.size
        var message = (
            fuse_out_header(
                len: UInt32(total), error: Int32(FUSE_NOTIFY_INVAL_INODE.rawValue), unique: 0),
            structure
        )
        _ = withUnsafeBytes(of: &message) { DeviceChannel(descriptor: share.device).send($0) }
    }
}
