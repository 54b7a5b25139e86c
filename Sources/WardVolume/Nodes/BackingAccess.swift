import Glibc
import WardFormat
import WardSystem

/// Reaches the backing files of nodes: by their names, by descriptors of directories that are kept
/// open, by descriptors for one call. Knows no content.
///
/// Concurrency: any thread; all properties are constant.
package final class BackingAccess: Sendable {
    let store: BackingStore
    let nodes: VolumeNodes
    let names: NameTree
    let keys: VolumeKeys
    private let rules: ClassRules
    let seals: ClassSeals
    /// Directories whose records get a seal later.
    let unsealed = WaitingDirectories()
    /// Directories in which something has no seal yet.
    let changed = WaitingDirectories()
    let reporter: Reporter
    let storage: any Storage

    var root: Node { nodes.root }

    init(
        _ store: BackingStore, _ nodes: VolumeNodes, _ names: NameTree, _ keys: VolumeKeys,
        _ rules: ClassRules, _ seals: ClassSeals, _ reporter: Reporter
    ) {
        self.store = store
        self.nodes = nodes
        self.names = names
        self.keys = keys
        self.rules = rules
        self.seals = seals
        self.reporter = reporter
        storage = store.storage
    }

    /// Returns the state of a directory node. The first call reads it from the directory's record,
    /// and the first one after the first unlock judges its class. Throws `EIO` where there is no
    /// valid record.
    package func directoryState(of node: Node) throws(Errno) -> DirectoryState {
        if let state = node.directory {
            if state.judgement.value == .open, seals.areOpen { try judge(node, state) }
            return state
        }
        guard node.isDirectory else { throw .notDirectory }
        let descriptor = try openDirectoryDescriptor(of: node)
        let record: DirectoryRecord
        do throws(Errno) {
            record = try readRecord(descriptor, node)
        } catch {
            storage.close(descriptor)
            throw error
        }
        let made = DirectoryState(record: record, seals)
        if record.isSynchronised { rules.noteMark() }
        let opened = StoreDescriptor(descriptor, storage)
        let state = node.adopt(made)
        if state === made { nodes.keptDirectories.keep(opened, state) }
        if state.judgement.value == .open, seals.areOpen { try judge(node, state) }
        return state
    }

    /// Returns an open descriptor of the backing directory. It is valid as long as the returned
    /// object is held.
    package func directoryDescriptor(of node: Node) throws(Errno) -> StoreDescriptor {
        let state = try directoryState(of: node)
        if let descriptor = state.openDescriptor { return descriptor }
        let descriptor: Int32
        do throws(Errno) {
            descriptor = try openDirectoryDescriptor(of: node)
        } catch .staleNFSFileHandle {
            descriptor = try withKeptDescriptor(of: node) { kept throws(Errno) in
                try storage.openat(kept, ".", O_RDONLY | O_DIRECTORY, mode: 0)
            }
        }
        let opened = StoreDescriptor(descriptor, storage)
        nodes.keptDirectories.keep(opened, state)
        return opened
    }

    /// Opens the backing directory by its name. Throws `ESTALE` if it has no name any more.
    package func openDirectoryDescriptor(of node: Node) throws(Errno) -> Int32 {
        if node === root {
            return try storage.openat(store.root, ".", O_RDONLY | O_DIRECTORY, mode: 0)
        }
        return try withLink(of: node) { directory, name throws(Errno) in
            let descriptor = try storage.openat(
                directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, mode: 0)
            _ = try verified(descriptor, node)
            return descriptor
        }
    }

    /// Returns the fstat(2) of the descriptor if it is the node's inode. Otherwise closes it and
    /// throws `ESTALE`: the name belongs to another file now.
    private func verified(_ descriptor: Int32, _ node: Node) throws(Errno) -> FileStatus {
        do throws(Errno) {
            let status = try storage.fstat(descriptor)
            if UInt64(status.st_ino) == node.inode, status.st_dev == store.device { return status }
        } catch {
            storage.close(descriptor)
            throw error
        }
        storage.close(descriptor)
        throw .staleNFSFileHandle
    }

    /// Runs `body` with a directory descriptor and a stored name that reach the node.
    ///
    /// Names are not locked. If a rename moves the node meanwhile, `body` fails with `ENOENT` or
    /// `ESTALE` and is run again with the new name. Throws `ESTALE` if the node has no name any
    /// more: the kernel then looks the path up again.
    func withLink<R>(
        of node: Node, _ body: (Int32, UnsafePointer<CChar>) throws(Errno) -> R
    ) throws(Errno) -> R {
        var attempt = 0
        while true {
            let quiet = names.changes.quietState
            guard let link = node.link else { throw .staleNFSFileHandle }
            do throws(Errno) {
                let parent = try directoryDescriptor(of: link.parent)
                return try withExtendedLifetime(parent) { () throws(Errno) in
                    try link.name.withUnsafeBufferPointer { name throws(Errno) in
                        try body(parent.rawValue, name.baseAddress!)
                    }
                }
            } catch {
                attempt += 1
                guard BackingStore.isGone(error),
                    attempt < (names.changes.areUnderWay ? BackingAccess.mostAttempts : 50)
                else { throw error }
                // The name went while the kernel did not know its directory, or knew it as another
                // node.
                if names.changes.isQuiet(since: quiet), node.forgetLink(link),
                    keys.format >= .version2
                {
                    node.noteForgotten(link)
                }
                if attempt > 3 { usleep(100) }
            }
        }
    }

    /// Attempts 100 µs apart while a name changes: at least half a second in all.
    static let mostAttempts = 5000

    /// Returns the status of the node's backing file.
    func status(of node: Node) throws(Errno) -> FileStatus {
        if let file = node.file { return try storage.fstat(file.descriptor) }
        do throws(Errno) {
            return try statusByName(of: node)
        } catch .staleNFSFileHandle {
            return try withKeptDescriptor(of: node) { kept throws(Errno) in try storage.fstat(kept)
            }
        }
    }

    /// Returns the status by one of the node's names. Throws `ESTALE` if it has no name any more.
    package func statusByName(of node: Node) throws(Errno) -> FileStatus {
        if node === root { return try storage.fstat(store.root) }
        return try withLink(of: node) { directory, name throws(Errno) in
            let status = try storage.fstatat(directory, name)
            guard UInt64(status.st_ino) == node.inode else { throw .staleNFSFileHandle }
            return status
        }
    }

    /// Runs `body` with the descriptor of a node that has no name any more. It may be a replaced
    /// file or link (`O_PATH`), for a program that found it by that name (decision 0064). Or it is
    /// a removed directory that a program is in. Throws `ESTALE` if there is none, or the node has
    /// a name.
    func withKeptDescriptor<R>(
        of node: Node, _ body: (Int32) throws(Errno) -> R
    ) throws(Errno) -> R {
        guard node.link == nil, let kept = node.kept else { throw .staleNFSFileHandle }
        return try withExtendedLifetime(kept) { () throws(Errno) in try body(kept.rawValue) }
    }

    /// Runs `body` with a descriptor of the node's backing file: the open file's, or else an
    /// `O_PATH` descriptor, which needs no permission on the file.
    func withPathDescriptor<R>(
        of node: Node, _ body: (Int32) throws(Errno) -> R
    ) throws(Errno) -> R {
        if node === root { return try body(store.root) }
        if let file = node.file {
            return try withExtendedLifetime(file) { () throws(Errno) in try body(file.descriptor) }
        }
        if node.isDirectory, let descriptor = node.directory?.openDescriptor {
            return try withExtendedLifetime(descriptor) { () throws(Errno) in
                try body(descriptor.rawValue)
            }
        }
        let descriptor: Int32
        do throws(Errno) {
            descriptor = try withLink(of: node) { directory, name throws(Errno) in
                let descriptor = try storage.openPlace(directory, name)
                _ = try verified(descriptor, node)
                return descriptor
            }
        } catch .staleNFSFileHandle {
            return try withKeptDescriptor(of: node, body)
        }
        defer { storage.close(descriptor) }
        return try body(descriptor)
    }

    /// Runs `body`, which may only read attributes of the node's backing file. If the file is not
    /// open, `body` first gets a name, which saves two system calls. If that gave no answer, it
    /// runs again with a descriptor.
    func asking<R>(
        _ node: Node, _ body: (BackingPlace) throws(Errno) -> R
    ) throws(Errno) -> R {
        if let (answer, _) = byName(node, body) { return try answer.get() }
        return try withPathDescriptor(of: node) { descriptor throws(Errno) in
            try body(.descriptor(descriptor))
        }
    }

    /// Like `asking`, and also returns the file's status after the answer.
    func askingWithStatus<R>(
        _ node: Node, _ body: (BackingPlace) throws(Errno) -> R
    ) throws(Errno) -> (answer: R, after: FileStatus) {
        if let (answer, status) = byName(node, body) { return (try answer.get(), status) }
        return try withPathDescriptor(of: node) { descriptor throws(Errno) in
            (try body(.descriptor(descriptor)), try storage.fstat(descriptor))
        }
    }

    /// Returns nil if the name gave no reliable answer. The file may be open, the name may be
    /// another file's or may have changed meanwhile, or the backing store failed.
    private func byName<R>(
        _ node: Node, _ body: (BackingPlace) throws(Errno) -> R
    ) -> (answer: Result<R, Errno>, after: FileStatus)? {
        guard node !== root, node.file == nil, node.directory?.openDescriptor == nil,
            let quiet = names.changes.quietState, let link = node.link,
            let parent = try? directoryDescriptor(of: link.parent)
        else { return nil }
        return withExtendedLifetime(parent) {
            link.name.withUnsafeBufferPointer { name in
                let answer = Result { () throws(Errno) in
                    try body(.name(name.baseAddress!, in: parent.rawValue))
                }
                if case .failure(let error) = answer, error != .noData, error != .notSupported {
                    return nil
                }
                // The name was the node's before, and is this inode's now. Only a removal or a move
                // could have given it to another file in between.
                guard let status = try? storage.fstatat(parent.rawValue, name.baseAddress!),
                    UInt64(status.st_ino) == node.inode, status.st_dev == store.device,
                    names.changes.isQuiet(since: quiet)
                else { return nil }
                return (answer, status)
            }
        }
    }

    /// Opens the node's backing file for content: for reading and writing, or only for reading
    /// where writing is not possible.
    func open(
        _ node: Node
    ) throws(Errno) -> (descriptor: Int32, status: FileStatus, isWritable: Bool) {
        let writable = !store.isReadOnly
        do throws(Errno) {
            return try withLink(of: node) { directory, name throws(Errno) in
                let descriptor = try storage.openat(
                    directory, name,
                    (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK,
                    mode: 0)
                return (descriptor, try verified(descriptor, node), writable)
            }
        } catch .staleNFSFileHandle {
            let descriptor = try withKeptDescriptor(of: node) { kept throws(Errno) in
                try storage.openat(
                    AT_FDCWD, "/proc/self/fd/\(kept)",
                    (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK, mode: 0)
            }
            return (descriptor, try verified(descriptor, node), writable)
        } catch
            where writable
            && [.readOnlyFileSystem, .permissionDenied, .textFileBusy, .notPermitted].contains(
                error)
        {
            return try withLink(of: node) { directory, name throws(Errno) in
                let descriptor = try storage.openat(
                    directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
                return (descriptor, try verified(descriptor, node), false)
            }
        }
    }
}

/// The place where a backing file's attributes are read.
enum BackingPlace {
    /// A stored name in an open directory.
    case name(UnsafePointer<CChar>, in: Int32)
    case descriptor(Int32)

    /// Reads the value, getxattr(2). Returns its size in bytes.
    func getxattr(
        _ attribute: String, in storage: any Storage, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        switch self {
        case .name(let name, let directory):
            try storage.getxattrat(directory, name, attribute, buffer)
        case .descriptor(let descriptor): try storage.getxattr(descriptor, attribute, buffer)
        }
    }

    /// Reads the list, listxattr(2). Returns its size in bytes.
    func listxattr(
        in storage: any Storage, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        switch self {
        case .name(let name, let directory): try storage.listxattrat(directory, name, buffer)
        case .descriptor(let descriptor): try storage.listxattr(descriptor, buffer)
        }
    }
}

// Names that a request makes or removes.
extension BackingAccess {
    /// Runs `body` with a name in `parent`, encrypted into `buffer`. The directory stays open, and
    /// a long name keeps `longNames` shared. Throws `ENAMETOOLONG` or `EINVAL` for a name that
    /// can't be stored.
    @inline(__always)
    func withName<R>(
        _ plain: UnsafeRawBufferPointer, in parent: Node, _ state: DirectoryState,
        to buffer: UnsafeMutablePointer<CChar>, _ body: (StoredName) throws(Errno) -> R
    ) throws(Errno) -> R {
        let isLong = try keys.names.encrypt(plain, in: state.id, to: buffer)
        return try names.withLongNames(if: isLong) { () throws(Errno) in
            let directory = try directoryDescriptor(of: parent)
            return try withExtendedLifetime(directory) { () throws(Errno) in
                try body(
                    StoredName(
                        parent: parent, state: state, directory: directory, plain: plain,
                        stored: buffer, isLong: isLong))
            }
        }
    }

    /// Runs `body` as `withName` does, with both names of a rename. One hold of `longNames` is for
    /// both.
    @inline(__always)
    func withNames<R>(
        _ old: UnsafeRawBufferPointer, in from: Node, to oldBuffer: UnsafeMutablePointer<CChar>,
        _ new: UnsafeRawBufferPointer, in to: Node, to newBuffer: UnsafeMutablePointer<CChar>,
        _ body: (StoredName, StoredName) throws(Errno) -> R
    ) throws(Errno) -> R {
        let fromState = try directoryState(of: from)
        let toState = try directoryState(of: to)
        let oldIsLong = try keys.names.encrypt(old, in: fromState.id, to: oldBuffer)
        let newIsLong = try keys.names.encrypt(new, in: toState.id, to: newBuffer)
        return try names.withLongNames(if: oldIsLong || newIsLong) { () throws(Errno) in
            let old = StoredName(
                parent: from, state: fromState, directory: try directoryDescriptor(of: from),
                plain: old, stored: oldBuffer, isLong: oldIsLong)
            let new = StoredName(
                parent: to, state: toState, directory: try directoryDescriptor(of: to),
                plain: new, stored: newBuffer, isLong: newIsLong)
            return try withExtendedLifetime((old.directory, new.directory)) { () throws(Errno) in
                try body(old, new)
            }
        }
    }
}
