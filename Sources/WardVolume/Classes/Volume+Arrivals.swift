import CWardLinux
import Glibc
import WardFormat
import WardSystem

// Files and directories that are moved or linked into a synchronised directory.
extension Volume {
    /// Reports a file or directory that arrived in a synchronised tree with classes above C. Called
    /// after it got a name in `to`, which its node knows. `before`: the marked directory where it
    /// was already. Errors here never reach the caller.
    func noteArrival(
        _ status: FileStatus, to: Node, _ stored: UnsafePointer<CChar>, before: Node?,
        _ operation: Arrival, _ caller: Caller, _ context: WorkerContext
    ) {
        let type = status.st_mode & S_IFMT
        guard let marked = rules.markedDirectory(over: to), marked !== before,
            type == S_IFREG || type == S_IFDIR
        else { return }
        gate.contexts.awaitClassDecisions()
        let node = nodes.table.retain(inode: UInt64(status.st_ino), type: type)
        node.addLink(to, stored)
        guard type == S_IFDIR else {
            defer { nodes.table.release(node, lookups: 1) }
            guard let own = try? protectionClass(of: node, context), !own.isForSynchronised else {
                return
            }
            return report(
                .arrivedInSynchronised(
                    path: names.path(of: NodeLink(parent: to, stored)), protectionClass: own,
                    marked: path(of: marked), operation: operation.rawValue, files: nil,
                    caller: caller))
        }
        // The directory may hold a million files, and a program may move it in and out without end.
        let isTaken = rules.addArrival { [self] in
            guard let context = try? WorkerContext(allocatingFor: self) else {
                report(
                    .note(
                        "\(path(of: marked)) is synchronised: there is too little memory to look at "
                            + "\(path(of: node)), which was moved into it; ward audit does"))
                return nodes.table.release(node, lookups: 1)
            }
            let found = protectedFiles(below: node, context)
            if let strongest = found.strongest {
                report(
                    .arrivedInSynchronised(
                        path: path(of: node), protectionClass: strongest,
                        marked: path(of: marked), operation: operation.rawValue,
                        files: found.count, caller: caller))
            }
            nodes.table.release(node, lookups: 1)
        }
        guard !isTaken else { return }
        nodes.table.release(node, lookups: 1)
        report(
            .note(
                "\(path(of: marked)) is synchronised: too many directories are moved into it to "
                    + "look at each; ward audit does"))
    }

    /// Counts the files above C below a directory.
    private func protectedFiles(below top: Node, _ context: WorkerContext) -> ProtectedFiles {
        var found = ProtectedFiles()
        // All stay retained to the end: a directory's node must stay in the table while there are
        // nodes below it.
        var directories: [Node] = [top]
        defer { for node in directories.dropFirst() { nodes.table.release(node, lookups: 1) } }
        var next = 0
        while next < directories.count {
            let directory = directories[next]
            next += 1
            var stored: [[CChar]] = []
            guard let state = try? backing.directoryState(of: directory),
                let descriptor = try? backing.directoryDescriptor(of: directory)
            else { continue }
            try? storage.list(descriptor.rawValue) { entry in
                guard entry.type != UInt8(DT_LNK), keys.names.isOurs(entry.name, in: state) else {
                    return
                }
                stored.append(entry.name.zeroTerminated)
            }
            for name in stored {
                guard let status = try? storage.fstatat(descriptor.rawValue, name) else { continue }
                let type = status.st_mode & S_IFMT
                guard type == S_IFDIR || type == S_IFREG else { continue }
                let node = nodes.table.retain(inode: UInt64(status.st_ino), type: type)
                // A node that is known already may have moved since: its own name is newer.
                node.addFirstLink(directory, name)
                if type == S_IFDIR {
                    directories.append(node)
                    continue
                }
                if let own = try? protectionClass(of: node, context) { found.add(own) }
                nodes.table.release(node, lookups: 1)
            }
        }
        return found
    }
}
