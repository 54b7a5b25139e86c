import WardFormat

/// A file or directory that a program has in use, from the volume's own tables. The mount is never
/// asked.
public struct HeldNode: Sendable {
    /// Plaintext path inside the volume; nil if it has no name left.
    public var path: String?
    /// The class of a file, or of new files in a directory; nil if it is not known.
    public var protectionClass: ProtectionClass?
}

// Open files by inode number. /proc shows these numbers for other processes.
extension Volume {
    /// Returns the file or directory with this inode number in the mount; nil if the kernel does
    /// not know it.
    ///
    /// May read the backing directory (long names), so threads that must not wait must not call it.
    public func heldNode(inode: UInt64) -> HeldNode? {
        // The kernel numbers the root itself before its first request.
        if inode == 1 || inode == root.inode {
            return HeldNode(path: "/", protectionClass: root.directory?.protectionClass)
        }
        guard let node = nodes.table.find(inode: inode) ?? nodes.open.find(inode: inode) else {
            return nil
        }
        let protectionClass =
            node.isDirectory ? node.directory?.protectionClass : node.protectionClass
        return HeldNode(
            path: node.link == nil ? nil : path(of: node), protectionClass: protectionClass)
    }

    /// The files that are open now, by inode number.
    public func openFileInodes() -> [UInt64: ProtectionClass] {
        var inodes: [UInt64: ProtectionClass] = [:]
        nodes.open.forEach { inodes[$0.inode] = $0.file?.protectionClass }
        return inodes
    }
}
