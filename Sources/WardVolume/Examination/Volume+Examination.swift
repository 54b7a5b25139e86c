import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Reading for a check: nodes by their stored names, headers, attributes and targets of links.
extension Volume {
    // MARK: Nodes

    /// Returns the node of a file by its stored name, with one look-up more. `type`: `S_IFMT` part
    /// of its mode. `seen`: `quietNames` before the name was found. Throws `ESTALE` or
    /// `ENOENT` where the name has gone since.
    package func retainNode(
        inode: UInt64, type: mode_t, _ stored: [CChar], in parent: Node, seen: UInt64?
    ) throws(Errno) -> Node {
        let node = nodes.table.retain(inode: inode, type: type)
        do throws(Errno) {
            try addFoundName(of: node, parent, stored, seen: seen)
        } catch {
            nodes.table.release(node, lookups: 1)
            throw error
        }
        return node
    }

    /// The state of names for `retainNode`, before a walk looks at one.
    package var quietNames: UInt64? { names.changes.quietState }

    /// Adds a name that a walk has found. A name that has gone since would mislead requests: they
    /// would take the node's place for another one.
    func addFoundName(
        of node: Node, _ parent: Node, _ stored: [CChar], seen: UInt64?
    ) throws(Errno) {
        var seen = seen
        if !names.changes.isQuiet(since: seen) {
            seen = names.changes.quietState
            try requireName(stored, parent, of: node)
        }
        node.addLink(parent, stored)
        if names.changes.isQuiet(since: seen) { return }
        do throws(Errno) {
            try requireName(stored, parent, of: node)
        } catch {
            backing.dropIfGone(NodeLink(parent: parent, name: stored), of: node)
            throw error
        }
    }

    private func requireName(
        _ stored: [CChar], _ parent: Node, of node: Node
    ) throws(Errno) {
        let directory = try backing.directoryDescriptor(of: parent)
        let status = try withExtendedLifetime(directory) { () throws(Errno) in
            try storage.fstatat(directory.rawValue, stored)
        }
        guard UInt64(status.st_ino) == node.inode else { throw .staleNFSFileHandle }
    }

    /// Returns the capsules of class B's keys that have another name than their own.
    package func misnamedCapsules() throws(Errno) -> [(stored: [CChar], id: [UInt8])] {
        try gate.capsules?.misnamed() ?? []
    }

    /// Gives a capsule its own name, durably. Throws `EEXIST` where another file has it.
    package func renameCapsule(_ stored: [CChar], toNameOf id: [UInt8]) throws(Errno) {
        try gate.capsules?.rename(stored, toNameOf: id)
    }

    /// Gives back one look-up of `retainNode`.
    package func releaseNode(_ node: Node) { nodes.table.release(node, lookups: 1) }

    /// Runs `body` with a file opened, unless a program is just making it. Throws `EIO` for a file
    /// that does not open, `EAGAIN` where `shouldStop` ends waiting for a file that is being made.
    package func withOpenFile(
        _ node: Node, _ context: WorkerContext, shouldStop: () -> Bool, _ body: (OpenFile) -> Void
    ) throws(Errno) {
        let file = try acquire(node, context).file
        defer { release(file, context) }
        guard let isNewborn = isNewborn(file, shouldStop) else { throw .wouldBlock }
        if !isNewborn { body(file) }
    }

    /// Returns the path of a stored name in a directory, for messages.
    package func path(of stored: [CChar], in parent: Node) -> String {
        names.path(of: NodeLink(parent: parent, name: stored))
    }

    /// Sets the class of a file that no program knows yet. No lock is held.
    package func setProtectionClass(
        of id: NodeID, to protectionClass: ProtectionClass, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        try setProtectionClass(of: node(id), to: protectionClass, caller, context)
    }

    // MARK: Files

    /// Whether a short stored name belongs to the directory with this ID.
    package func opens(_ stored: [UInt8], in directoryID: [UInt8]) -> Bool {
        stored.withUnsafeBytes { keys.names.decrypt($0, in: directoryID) }.map(
            Volume.isPossibleName) ?? false
    }

    /// Returns a directory's record from the target of its link. `parentID`: the ID of the parent.
    /// Throws where it does not authenticate, or a later version wrote it.
    package func directoryRecord(
        _ target: [UInt8], parentID: [UInt8]
    ) throws(FormatError) -> DirectoryRecord {
        try keys.directoryRecord(String(decoding: target, as: UTF8.self), parentID: parentID)
    }

    /// Returns the header of a file by its stored name; nil where none authenticates.
    package func header(
        _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> FileHeader? {
        guard try storage.fstatat(directory, stored).st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        let file = try storage.openat(
            directory, stored, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        return try backing.header(of: file)?.header
    }

    /// Returns the IDs of all directories where a file by its stored name belongs; none where no
    /// header authenticates.
    package func places(
        ofFile stored: [CChar], in directory: Int32
    ) throws(Errno) -> [[UInt8]] {
        let file = try storage.openat(
            directory, stored, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        guard let found = try backing.header(of: file) else { return [] }
        let list =
            found.format >= .version2
            ? try places(of: found.header, .descriptor(file))?.directoryIDs ?? [] : []
        return [found.header.directoryID] + list
    }

    /// Returns the header of an open backing file that binds it to directories; nil where none
    /// authenticates, and for one of format 1.
    func boundHeader(_ file: Int32) throws(Errno) -> FileHeader? {
        try backing.header(of: file).flatMap { $0.format >= .version2 ? $0.header : nil }
    }

    /// Returns the ID of the directory where a file belongs, if that is another one than
    /// `directoryID`. Nil where the file belongs there, or has no header that tells.
    package func home(
        ofFile stored: [CChar], in directory: Int32, _ directoryID: [UInt8]
    ) throws(Errno) -> [UInt8]? {
        guard bindsPlaces,
            try storage.fstatat(directory, stored).st_mode & S_IFMT == S_IFREG
        else { return nil }
        let file = try storage.openat(
            directory, stored, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        guard let header = try boundHeader(file), header.directoryID != directoryID else {
            return nil
        }
        let places = try self.places(of: header, .descriptor(file))?.directoryIDs ?? []
        return places.contains(directoryID) ? nil : places.last ?? header.directoryID
    }

    /// Copies the pages with data of a backing file, each to its offset in `target`; holes stay
    /// holes.
    package func copyPages(
        _ pages: Range<Int>, of descriptor: Int32, to target: Int32
    ) throws(Errno) {
        let pageBytes = layout.pageBytes
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: pageBytes, alignment: 64)
        defer { buffer.deallocate() }
        var page = pages.lowerBound
        while case .page(let next) = try nextPageWithData(
            descriptor, from: page, before: pages.upperBound, to: buffer)
        {
            try storage.pwrite(target, buffer, pageBytes, at: next * pageBytes)
            page = next + 1
        }
    }

    // MARK: Attributes and links

    /// Whether a stored attribute authenticates with its owner's ID, or is a valid record of a
    /// mode. Throws `ENOMEM`.
    package func isSoundAttribute(
        _ name: String, _ value: [UInt8], owner: [UInt8]?
    ) throws(Errno) -> Bool {
        if name == BackingMode.attributeName { return value.count == 2 }
        guard name.hasPrefix("user.w.") || name.hasPrefix("trusted.w.") else { return true }
        guard let owner else { return false }
        do throws(CryptoError) {
            _ = try keys.openAttributeBytes(value, owner, name)
            return true
        } catch {
            if error == .outOfLockedMemory { throw .noMemory }
            return false
        }
    }

    /// Makes changed attributes durable. `descriptor`: the node's backing file, open for a check.
    package func syncAttributes(of node: Node, _ descriptor: Int32) throws(Errno) {
        guard let file = node.file else { return try storage.fsync(descriptor) }
        try syncAttributes(of: file)
    }

    /// Makes changed attributes of an open file durable.
    func syncAttributes(of file: OpenFile) throws(Errno) {
        let failures = file.syncs.failures
        try sync(file, dataOnly: false)
        if file.syncs.failures != failures { throw file.syncs.lastFailure }
    }

    /// Whether the stored target of a symbolic link authenticates in the directory. Calls
    /// `onLongTarget` with the name of its file in `ward.links`, if it has one, and `onPermit` with
    /// the name of its permit. Throws where that file can't be read now.
    package func isSoundTarget(
        _ stored: [UInt8], in directoryID: [UInt8], _ directory: Int32,
        onLongTarget: (String) -> Void, onPermit: (String) -> Void
    ) throws(Errno) -> Bool {
        let opened =
            bindsPlaces
            ? try linkContent(stored, in: directoryID, directory)
            : linkContent(stored, origin: []).map { (content: $0, origin: directoryID) }
        guard let opened else { return false }
        if opened.origin != directoryID { onPermit(LinkPermit.name(of: stored)) }
        guard case .long(let long) = opened.content else { return true }
        onLongTarget(long.fileName)
        do throws(Errno) {
            return try target(long) != nil
        } catch .noSuchFileOrDirectory {
            return false
        }
    }

    /// Whether a link that was made in the directory with this ID has this stored target. Calls
    /// `onLongTarget` as `isSoundTarget` does.
    package func isTarget(
        _ stored: [UInt8], ofOrigin directoryID: [UInt8], onLongTarget: (String) -> Void
    ) -> Bool {
        guard let content = linkContent(stored, origin: directoryID) else { return false }
        if case .long(let long) = content { onLongTarget(long.fileName) }
        return true
    }

    // MARK: Epochs

    /// The epoch for pages that are written now.
    package var epoch: UInt32 { durability.epoch.load(ordering: .sequentiallyConsistent) }

    /// Advances past an epoch that pages carry although the state record is older, and makes a
    /// durable point. No lock is held.
    package func skipEpochs(through seen: UInt32) throws(Errno) {
        durability.skipEpochs(through: seen)
        try durablePoint()
    }

    /// Returns the fault of the open volume's state record, as it is on disk; nil if it has none.
    package func stateProblem() throws(VolumeOpenError) -> String? {
        try durability.stateProblem()
    }
}
