import Glibc
import WardFormat
import WardSystem

// Reports the removal of files that can't be read now. Apps took "locked" for "damaged" and
// replaced or deleted such files. The removal is allowed (row O12) and reported.
extension Volume {
    /// A file that can't be read now and is about to lose its last name.
    struct UnreadFile {
        /// The operation in the event `removedUnread`.
        enum Removal: String {
            case unlink, rename
        }

        var path: String
        var protectionClass: ProtectionClass

        func removed(by removal: Removal, _ caller: Caller) -> VolumeEvent {
            .removedUnread(
                path: path, protectionClass: protectionClass, operation: removal.rawValue,
                caller: caller)
        }
    }

    /// Returns nil if the file can be read, is empty, has other names or is no regular file. Does
    /// not ask the backing store while every class is open. Errors here never reach the caller.
    func unreadableNow(
        _ status: FileStatus, _ parent: Node, _ stored: UnsafePointer<CChar>,
        _ context: WorkerContext
    ) -> UnreadFile? {
        guard !gate.classes.isOpenForAll, status.st_mode & S_IFMT == S_IFREG, status.st_nlink == 1,
            status.st_size > 0
        else { return nil }
        let node = nodes.table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
        node.addLink(parent, stored)
        defer { nodes.table.release(node, lookups: 1) }
        if let known = node.protectionClass, gate.classes.state(of: known) == .open { return nil }
        guard let file = try? acquire(node, context).file else { return nil }
        defer { release(file, context) }
        return file.withReadLock {
            guard file.sizeBytes > 0 else { return nil }
            switch gate.classes.state(of: file.protectionClass) {
            case .open, .closing: return nil
            // A program that has the file open can still read it.
            case .openFilesOnly where file.hasKey: return nil
            case .openFilesOnly, .closed:
                return UnreadFile(path: path(of: node), protectionClass: file.protectionClass)
            }
        }
    }
}
