import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// Whether a directory is synchronised: the answer of `user.ward.synced`.
enum Synchronisation: String {
    /// The directory has a mark of its own.
    case marked
    /// The directory or file lies in a marked directory.
    case inherited
}

// Directories that are marked as synchronised (docs/sync.md). A synchronising tool reads through
// the mount and takes content out of the protection. So nothing in such a directory, at any depth,
// gets a class above C.
//
// A mark is a flag in the directory's record. The volume looks for it from below, parent by parent,
// and only where a class above C is about to be given. Nodes below hold no copy of it. So a rename
// or a new mark has nothing to update, and a directory of class C or D costs nothing. While the
// volume has no mark, no request climbs.
//
// A request decides on a class between `beginClassDecision` and `endClassDecision`. After a mark is
// set, or a name is moved into a marked tree, that request waits for the decisions that began
// before. Then everything that was decided without the mark is visible, and is reported.
extension Volume {
    /// The operation by which a file got, or was to get, into a marked directory.
    enum Arrival: String {
        case create, setClass, link, rename
    }

    /// Returns the nearest marked directory that `directory` is or lies in; nil if there is none.
    func markedDirectory(over directory: Node) -> Node? {
        guard rules.hasMarks.load(ordering: .sequentiallyConsistent) else { return nil }
        var current = directory
        while true {
            // Each directory with a node below it has its state in memory.
            if current.directory?.isMarked == true { return current }
            guard current !== root, let parent = current.link?.parent else { return nil }
            current = parent
        }
    }

    /// Like `markedDirectory(over:)`, for a file by each of its known names. Also returns the name
    /// that is inside.
    func markedDirectory(overAnyNameOf node: Node) -> (marked: Node, link: NodeLink)? {
        guard rules.hasMarks.load(ordering: .sequentiallyConsistent) else { return nil }
        for link in node.allLinks {
            if let marked = markedDirectory(over: link.parent) { return (marked, link) }
        }
        return nil
    }

    /// The answer of `user.ward.synced`; throws `ENODATA` outside of marked directories.
    func synchronisation(of node: Node) throws(Errno) -> Synchronisation {
        if node.isDirectory, try backing.directoryState(of: node).isMarked { return .marked }
        let isInside =
            node.isDirectory
            ? markedDirectory(over: node) != nil
            : node.isRegular && markedDirectory(overAnyNameOf: node) != nil
        guard isInside else { throw .noData }
        return .inherited
    }

    /// Sets a directory's mark or removes it. Throws `ENODATA` if there is none to remove, `EPERM`
    /// for a caller that is neither owner nor root. A directory of class A, B or CX gets class C
    /// with its mark, and keeps it when the mark goes. The change is durable when this returns.
    func setMark(
        of node: Node, to isMarked: Bool, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        guard try isOwner(caller, of: node) else { throw .notPermitted }
        guard node.isDirectory else { throw .notDirectory }
        let state = try backing.directoryState(of: node)
        try state.recordLock.withLock { () throws(Errno) in
            if !isMarked, !state.isMarked { throw .noData }
            let own = state.protectionClass
            try writeRecord(
                of: node, state,
                !isMarked || own.isForSynchronised ? own : .completeUntilFirstUserAuthentication,
                isMarked: isMarked, context)
        }
        if isMarked { awaitClassDecisions() }
    }

    // MARK: Giving classes

    /// Returns the class that a new file in `parent` inherits. Begins a decision if the class is
    /// above C.
    ///
    /// In a synchronised tree the class is C where the directory's own is above it. The record is
    /// then lowered, once, so that the next file finds C there.
    func classOfNewFiles(
        in parent: Node, _ state: DirectoryState, _ context: WorkerContext
    ) throws(Errno) -> ProtectionClass {
        let own = state.protectionClass
        if own.isForSynchronised { return own }
        context.beginClassDecision()
        guard markedDirectory(over: parent) != nil else { return own }
        context.endClassDecision()
        return try state.recordLock.withLock { () throws(Errno) in
            if !state.protectionClass.isForSynchronised {
                try writeRecord(
                    of: parent, state, .completeUntilFirstUserAuthentication,
                    isMarked: state.isMarked, context)
            }
            return state.protectionClass
        }
    }

    /// Throws `EINVAL` for a class above C under a name in a synchronised tree. Otherwise it
    /// begins a decision, which the caller ends by `endClassDecision`.
    func mayDecide(
        _ protectionClass: ProtectionClass, _ parent: Node, _ name: UnsafeRawBufferPointer,
        _ operation: Arrival, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) {
        context.beginClassDecision()
        guard let marked = markedDirectory(over: parent) else { return }
        throw refused(
            names.path(of: String(decoding: name, as: UTF8.self), in: parent),
            protectionClass, marked, operation, caller)
    }

    func refused(
        _ path: String, _ protectionClass: ProtectionClass, _ marked: Node, _ operation: Arrival,
        _ caller: Caller
    ) -> Errno {
        report(
            .refusedInSynchronised(
                path: path, protectionClass: protectionClass, marked: self.path(of: marked),
                operation: operation.rawValue, caller: caller))
        return .invalidArgument
    }

    /// Waits until each decision that had begun has ended. The caller holds no lock that a decision
    /// waits for; a record lock and shared `longNames` are none.
    func awaitClassDecisions() {
        var begun: [ObjectIdentifier: UInt64] = [:]
        gate.contexts.forEach { context in
            let count = context.classDecisions.load(ordering: .sequentiallyConsistent)
            if count & 1 == 1 { begun[ObjectIdentifier(context)] = count }
        }
        var pause: UInt32 = 20
        while !begun.isEmpty {
            usleep(pause)
            pause = min(pause * 2, 5000)
            var waiting: [ObjectIdentifier: UInt64] = [:]
            gate.contexts.forEach { context in
                let count = context.classDecisions.load(ordering: .sequentiallyConsistent)
                if begun[ObjectIdentifier(context)] == count {
                    waiting[ObjectIdentifier(context)] = count
                }
            }
            begun = waiting
        }
    }

    // MARK: Moved in

    /// Reports a file or directory that arrived in a synchronised tree with classes above C. Called
    /// after it got a name in `to`, which its node knows. `before`: the marked directory where it
    /// was already. Errors here never reach the caller.
    func noteArrival(
        _ status: FileStatus, to: Node, _ stored: UnsafePointer<CChar>, before: Node?,
        _ operation: Arrival, _ caller: Caller, _ context: WorkerContext
    ) {
        let type = status.st_mode & S_IFMT
        guard let marked = markedDirectory(over: to), marked !== before,
            type == S_IFREG || type == S_IFDIR
        else { return }
        awaitClassDecisions()
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

    /// The files above C below a directory.
    private struct ProtectedFiles {
        var count = 0
        var strongest: ProtectionClass?

        mutating func add(_ protectionClass: ProtectionClass) {
            count += 1
            if protectionClass.strength > strongest?.strength ?? 0 { strongest = protectionClass }
        }
    }

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
                if let own = try? protectionClass(of: node, context), !own.isForSynchronised {
                    found.add(own)
                }
                nodes.table.release(node, lookups: 1)
            }
        }
        return found
    }
}

extension WorkerContext {
    /// Begins a decision, before the request looks for a mark. A request that sets a mark then
    /// waits for this one. Either this request sees the mark, or the other sees this decision. Both
    /// store before they load, in one order for all threads.
    func beginClassDecision() {
        let count = classDecisions.load(ordering: .relaxed)
        if count & 1 == 0 {
            classDecisions.wrappingAdd(1, ordering: .sequentiallyConsistent)
        }
    }

    /// Ends the decision: the file has its name and class, or never will. Does nothing if no
    /// decision was begun.
    func endClassDecision() {
        if classDecisions.load(ordering: .relaxed) & 1 == 1 {
            classDecisions.wrappingAdd(1, ordering: .sequentiallyConsistent)
        }
    }
}
