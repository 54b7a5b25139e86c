import CWardLinux
import Glibc
import WardFormat
import WardSystem

// The directories in which files belong (format 2, docs/format.md §6). A file's header names one.
// The attribute `user.ward.places` names those that a rename or link(2) added since.
extension Volume {
    /// Whether files, directories and links are bound to their directories.
    package var bindsPlaces: Bool { keys.format >= .version2 }

    // MARK: Checking

    /// Whether a file belongs in a directory. `attributes`: the place where the file's attributes
    /// are read.
    func belongs(
        _ header: FileHeader, in directoryID: [UInt8], _ attributes: BackingPlace
    ) throws(Errno) -> Bool {
        if header.directoryID == directoryID { return true }
        return try places(of: header, attributes)?.contains(directoryID) == true
    }

    /// The list of further places; nil where there is none that authenticates.
    func places(
        of header: FileHeader, _ attributes: BackingPlace
    ) throws(Errno) -> FilePlaces? {
        var value = [UInt8](repeating: 0, count: FilePlaces.mostBytes)
        do throws(Errno) {
            let count = try value.withUnsafeMutableBufferPointer { buffer throws(Errno) in
                try attributes.getxattr(
                    FilePlaces.attributeName, in: storage, UnsafeMutableRawBufferPointer(buffer))
            }
            value.removeLast(value.count - count)
        } catch .noData, .notSupported, .outOfRange {
            return nil
        }
        return try? FilePlaces(reading: value, fileID: header.fileID, macKey: keys.places)
    }

    /// Checks the known names of a file that is being opened (`requireSoundNames`).
    func requirePlaces(
        of node: Node, _ header: FileHeader, _ descriptor: Int32
    ) throws(Errno) {
        guard bindsPlaces else { return }
        do throws(Errno) {
            try requireSoundNames(of: node, "it belongs in another directory") {
                directoryID, _ throws(Errno) in
                if header.directoryID == directoryID { return true }
                guard try belongs(header, in: directoryID, .descriptor(descriptor)) else {
                    return false
                }
                // A file with one name gets a header that fits (`settleMovedFiles`).
                durability.moved.note(node) { nodes.table.retain($0) }
                return true
            }
        } catch {
            // A replaced file may still be opened by the name that it had (decision 0064).
            guard error == .staleNFSFileHandle, node.link == nil, let kept = node.kept,
                try belongs(header, in: kept.directory.id, .descriptor(descriptor))
            else { throw error }
        }
    }

    /// Checks the known names of a node. `belongs`: whether the node belongs in the directory with
    /// this ID, under this name. Throws `EIO`, with an event, while the node has a name where it
    /// does not belong. If it has others, the kernel is told to forget that one, and then the node
    /// forgets it. A rename changes the store first and the node later, so a refusal is looked at
    /// again.
    ///
    /// A walk, or a look-up beside a rename, may have given the node a name that had gone already.
    /// Such a name is no reason to refuse the others. Throws `ESTALE` where no name is left.
    func requireSoundNames(
        of node: Node, _ reason: String,
        _ belongs: (_ directoryID: [UInt8], NodeLink) throws(Errno) -> Bool
    ) throws(Errno) {
        var there: [NodeLink] = []
        var areAll = false
        for _ in 0..<BackingAccess.mostAttempts {
            let quiet = names.changes.quietState
            let links = node.allLinks
            if links.isEmpty { throw .staleNFSFileHandle }
            var foreign: [NodeLink] = []
            for link in links {
                let directoryID = try backing.directoryState(of: link.parent).id
                if try !belongs(directoryID, link) { foreign.append(link) }
            }
            if foreign.isEmpty { return }
            areAll = foreign.count == links.count
            there = foreign.filter { !backing.isGone($0, of: node) }
            if there.isEmpty, !areAll {
                // The kernel may know the name, from the moment when it was there.
                for link in foreign {
                    forgetInKernel(link) { [self] in backing.dropIfGone(link, of: node) }
                }
                return
            }
            if names.changes.isQuiet(since: quiet) { break }
            usleep(100)
        }
        guard !there.isEmpty else { throw .staleNFSFileHandle }
        for link in there {
            report(.integrityFailure(path: names.path(of: link), reason: reason))
            // A node keeps its last name: by it the next request is refused, too.
            if !areAll { forgetInKernel(link) { node.dropLink(link) } }
        }
        throw .ioError
    }

    /// Has the kernel forget a name on the background thread, and then runs `body`. No lock may be
    /// held while the kernel is told.
    func forgetInKernel(_ link: NodeLink, _ body: @escaping @Sendable () -> Void) {
        background.add { [self] in
            if let state = link.parent.directory,
                let plain = names.plainNameBytes(of: link, in: state)
            {
                kernel?.invalidateName(plain, in: link.parent === root ? 1 : link.parent.id)
            }
            body()
        }
    }

    /// Has the kernel forget names of the node that the store does not have any more. By such a
    /// name a program would reach a file of another directory.
    func forgetNamesInKernel(of node: Node) {
        guard node.notes.hasForgottenNames.value else { return }
        for link in node.takeForgottenLinks() { forgetInKernel(link) {} }
    }

    /// Checks a name that a look-up found, where the node has no name in the directory yet. A node
    /// that is not known by anything else is checked when it is opened. Throws `EIO`, with an
    /// event, if the node does not belong here.
    func requirePlace(
        of node: Node, _ parent: Node, _ stored: UnsafePointer<CChar>, _ directory: Int32
    ) throws(Errno) {
        guard bindsPlaces, node.link != nil || node.file != nil || node.directory != nil,
            !node.allLinks.contains(where: { $0.parent === parent })
        else { return }
        let directoryID = try backing.directoryState(of: parent).id
        let belongs =
            switch node.type {
            case S_IFREG: try fileBelongs(node, in: directoryID, directory, stored)
            case S_IFDIR: try backing.directoryBelongs(node, stored, in: directory, directoryID)
            case S_IFLNK: try linkBelongs(node, in: directoryID, directory, stored)
            default: true
            }
        guard !belongs else { return }
        // A rename may have taken the name and the place away since the look-up found it.
        if store.isGone(node.inode, directory, stored) { throw .staleNFSFileHandle }
        let path = names.path(of: NodeLink(parent: parent, stored))
        report(.integrityFailure(path: path, reason: "it belongs in another directory"))
        throw .ioError
    }

    private func fileBelongs(
        _ node: Node, in directoryID: [UInt8], _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> Bool {
        if let file = node.file {
            return try file.withReadLock { () throws(Errno) in
                guard let header = file.headers.bound else { return true }
                return try belongs(header, in: directoryID, .descriptor(file.descriptor))
            }
        }
        let descriptor = try storage.openat(
            directory, stored, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(descriptor) }
        try backing.require(descriptor, node)
        // Without a header there is nothing to belong elsewhere: the file is empty, or does not
        // open.
        guard let header = try boundHeader(descriptor) else { return true }
        return try belongs(header, in: directoryID, .descriptor(descriptor))
    }

    private func linkBelongs(
        _ node: Node, in directoryID: [UInt8], _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> Bool {
        let place = try storage.openPlace(directory, stored)
        defer { storage.close(place) }
        try backing.require(place, node)
        return try linkContent(storedLink(place, ""), in: directoryID, directory) != nil
    }

    // MARK: Changing the list

    /// Adds a directory to the places of a file. Durable on return where the store does not keep
    /// the order of changes. `present`: the directory of the file's only name; nil where all places
    /// stay. Returns the list before; nil where nothing was changed. Throws `EXDEV` where the store
    /// has no attributes, `EMLINK` where the list is full. The caller has write access.
    func permit(
        _ header: FileHeader, in directoryID: [UInt8], keeping present: [UInt8]?, _ file: OpenFile
    ) throws(Errno) -> [[UInt8]]? {
        if header.directoryID == directoryID { return nil }
        let before = try places(of: header, .descriptor(file.descriptor))?.directoryIDs ?? []
        var kept = before
        if let present {
            // A place of the past ends here. On a store without an order the name may come back
            // there until the move is durable.
            kept =
                store.traits.keepsOrder
                ? before.filter { $0 == present } : before.filter { $0 != directoryID }
        }
        guard let new = FilePlaces(directoryIDs: kept + [directoryID]) else {
            throw .tooManyLinks
        }
        do throws(Errno) {
            try put(new, of: header, file.descriptor)
        } catch .notSupported {
            throw .improperLink
        }
        if !store.traits.keepsOrder { try syncAttributes(of: file) }
        return before
    }

    /// Gives a file the list of places that it had before a change of names that failed.
    func putBack(_ directoryIDs: [[UInt8]], of file: OpenFile) {
        guard let header = file.headers.bound else { return }
        if let places = FilePlaces(directoryIDs: directoryIDs) {
            try? put(places, of: header, file.descriptor)
        } else {
            try? storage.removexattr(file.descriptor, FilePlaces.attributeName)
        }
    }

    func put(
        _ places: FilePlaces, of header: FileHeader, _ descriptor: Int32
    ) throws(Errno) {
        let value = places.serialized(fileID: header.fileID, macKey: keys.places)
        try value.withUnsafeBytesTyped { bytes throws(Errno) in
            try storage.setxattr(descriptor, FilePlaces.attributeName, bytes, flags: 0)
        }
    }

    /// Takes away the place of a name that went from a file with other names. A list that stays
    /// longer harms nothing, so errors are left, and so is a store that does not keep the order.
    /// The caller has write access.
    func forgetPlace(of file: OpenFile, in directoryID: [UInt8]) {
        guard store.traits.keepsOrder, let header = file.headers.bound,
            // The entry of the header's own directory counts while that header is not durable.
            header.directoryID != directoryID,
            var left = try? places(of: header, .descriptor(file.descriptor))?.directoryIDs,
            let index = left.firstIndex(of: directoryID)
        else { return }
        left.remove(at: index)
        putBack(left, of: file)
    }

    // MARK: After a durable point

    /// Writes the headers of files that moved before the last durable point: each names the present
    /// directory, which ends the old place. Gives back a look-up of each node. Runs on a background
    /// thread, or at the end of the mount.
    func settleMovedFiles(_ moved: [Node]) {
        if moved.isEmpty { return }
        defer { for node in moved { nodes.table.release(node, lookups: 1) } }
        // After a failed sync memory may show pages that the disk does not have: such a file is not
        // touched, and keeps its list.
        guard durability.syncFailures == 0 else { return }
        guard let context = try? WorkerContext(allocatingFor: self) else { return }
        for node in moved { try? settleMovedFile(node, context) }
    }

    /// The name can't move meanwhile: a rename to another directory has `directoryMoves`
    /// exclusively.
    private func settleMovedFile(_ node: Node, _ context: WorkerContext) throws(Errno) {
        try names.directoryMoves.withReadLock { () throws(Errno) in
            guard let link = node.link, node.allLinks.count == 1 else { return }
            let directoryID = try backing.directoryState(of: link.parent).id
            let file = try acquire(node, context).file
            defer { release(file, context) }
            try file.withWriteAccess { access throws(Errno) in
                try settle(access, in: directoryID)
            }
        }
    }

    /// Writes the header with the directory of the file's only name. The list then has this
    /// directory alone, and stays: a copy of the store may have it without the new header.
    private func settle(
        _ access: borrowing FileWriteAccess, in directoryID: [UInt8]
    ) throws(Errno) {
        let file = access.file
        let before = try storage.fstat(file.descriptor)
        guard file.isWritable, before.st_nlink == 1, var header = file.headers.bound,
            let places = FilePlaces(directoryIDs: [directoryID])
        else { return }
        let known = try self.places(of: header, .descriptor(file.descriptor))
        if header.directoryID == directoryID {
            if let known, known != places { try put(places, of: header, file.descriptor) }
            return
        }
        header.directoryID = directoryID
        try rewriteHeader(access, header)
        access.headers.moved(to: directoryID)
        try storage.setTimes(
            file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
            modification: before.st_mtim)
        try put(places, of: header, file.descriptor)
    }
}
