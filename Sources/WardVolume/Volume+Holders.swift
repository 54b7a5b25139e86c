import WardFormat

/// A file or directory that a program has in use, by what the volume itself knows: nothing is asked
/// of the mount.
public struct HeldNode: Sendable {
    /// Inside the volume; nil where it has no name left.
    public var path: String?
    /// Of a file its class, of a directory that of new files in it; nil where it is not known.
    public var protectionClass: ProtectionClass?
}

// Who has files open: from the inode numbers that /proc shows of other processes back to files.
extension Volume {
    /// What has this inode number in the mount; nil for what the kernel does not know.
    ///
    /// May read the backing directory (long names), so it is not for threads that must not wait.
    public func heldNode(inode: UInt64) -> HeldNode? {
        // The kernel gives the root a number of its own before it asks.
        if inode == 1 || inode == root.inode {
            return HeldNode(path: "/", protectionClass: root.directory?.protectionClass)
        }
        guard let node = table.find(inode: inode) ?? openNode(inode: inode) else { return nil }
        let protectionClass =
            node.isDirectory ? node.directory?.protectionClass : node.protectionClass
        return HeldNode(
            path: node.link == nil ? nil : path(of: node), protectionClass: protectionClass)
    }

    /// The files that are open now, by inode number.
    public func openFileInodes() -> [UInt64: ProtectionClass] {
        openNodesLock.lockNow()
        defer { openNodesLock.unlock() }
        var inodes: [UInt64: ProtectionClass] = [:]
        for node in openNodes.values { inodes[node.inode] = node.file?.protectionClass }
        return inodes
    }

    /// A file that was unlinked while it was open has left the table.
    private func openNode(inode: UInt64) -> Node? {
        openNodesLock.lockNow()
        defer { openNodesLock.unlock() }
        return openNodes.values.first { $0.inode == inode }
    }
}
