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
        try requireSoundNames(of: node, "it belongs in another directory") {
            directoryID, _ throws(Errno) in
            try belongs(header, in: directoryID, .descriptor(descriptor))
        }
    }

    /// Checks the known names of a node. `belongs`: whether the node belongs in the directory with
    /// this ID, under this name. Other names are reported and forgotten. Throws `EIO` where none is
    /// left, else `ESTALE`: the kernel then looks the path up again.
    func requireSoundNames(
        of node: Node, _ reason: String,
        _ belongs: (_ directoryID: [UInt8], NodeLink) throws(Errno) -> Bool
    ) throws(Errno) {
        let links = node.allLinks
        var foreign: [NodeLink] = []
        for link in links {
            let directoryID = try backing.directoryState(of: link.parent).id
            if try !belongs(directoryID, link) { foreign.append(link) }
        }
        if foreign.isEmpty { return }
        for link in foreign {
            report(.integrityFailure(path: names.path(of: link), reason: reason))
        }
        guard foreign.count < links.count else { throw .ioError }
        for link in foreign { node.removeLink(link.parent, link.name) }
        throw .staleNFSFileHandle
    }

    /// Checks a name that a look-up found, where the node is known by names in other directories.
    /// Throws `EIO`, with an event, if the node does not belong here.
    func requirePlace(
        of node: Node, _ parent: Node, _ stored: UnsafePointer<CChar>, _ directory: Int32
    ) throws(Errno) {
        guard bindsPlaces, let known = node.link, known.parent !== parent,
            !node.allLinks.contains(where: { $0.parent === parent })
        else { return }
        let directoryID = try backing.directoryState(of: parent).id
        let belongs =
            switch node.type {
            case S_IFREG: try fileBelongs(node, in: directoryID, directory, stored)
            case S_IFDIR: try backing.directoryBelongs(stored, in: directory, directoryID)
            case S_IFLNK:
                try linkContent(storedLink(directory, stored), in: directoryID, directory) != nil
            default: true
            }
        guard !belongs else { return }
        let path = names.path(of: NodeLink(parent: parent, stored))
        report(.integrityFailure(path: path, reason: "it belongs in another directory"))
        throw .ioError
    }

    private func fileBelongs(
        _ node: Node, in directoryID: [UInt8], _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> Bool {
        if let file = node.file {
            return try file.withReadLock { () throws(Errno) in
                guard let header = file.header else { return true }
                return try belongs(header, in: directoryID, .descriptor(file.descriptor))
            }
        }
        // Without a header there is nothing to belong elsewhere: the file is empty, or does not
        // open.
        guard let header = try header(directory, stored) else { return true }
        return try belongs(header, in: directoryID, .name(stored, in: directory))
    }

    // MARK: Changing the list

    /// Adds a directory to the places of a file. Durable on return where the store does not keep
    /// the order of changes. `keeping`: the present directory of the file's only name; nil where
    /// all places stay. Throws `EXDEV` where the store has no attributes, `EMLINK` where the list
    /// is full. The caller has write access.
    func permit(
        _ header: FileHeader, in directoryID: [UInt8], keeping present: [UInt8]?, _ file: OpenFile
    ) throws(Errno) {
        if header.directoryID == directoryID { return }
        let before = try places(of: header, .descriptor(file.descriptor))?.directoryIDs ?? []
        // A place of the past ends here.
        let kept = present.map { before.contains($0) ? [$0] : [] } ?? before
        guard let new = FilePlaces(directoryIDs: kept + [directoryID]) else {
            throw .tooManyLinks
        }
        do throws(Errno) {
            try put(new, of: header, file.descriptor)
        } catch .notSupported {
            throw .improperLink
        }
        if !store.traits.keepsOrder { try syncAttributes(of: file) }
    }

    private func put(
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
        guard store.traits.keepsOrder, let header = file.header,
            var left = try? places(of: header, .descriptor(file.descriptor))?.directoryIDs,
            let index = left.firstIndex(of: directoryID)
        else { return }
        left.remove(at: index)
        if let places = FilePlaces(directoryIDs: left) {
            try? put(places, of: header, file.descriptor)
        } else {
            try? storage.removexattr(file.descriptor, FilePlaces.attributeName)
        }
    }

    // MARK: After a durable point

    /// Writes the headers of files that moved before the last durable point: each names the present
    /// directory, which ends the old place. Gives back a look-up of each node. Runs on a background
    /// thread, or at the end of the mount.
    func settleMovedFiles(_ moved: [Node]) {
        if moved.isEmpty { return }
        defer { for node in moved { nodes.table.release(node, lookups: 1) } }
        guard let context = try? WorkerContext(allocatingFor: self) else { return }
        for node in moved { try? settleMovedFile(node, context) }
    }

    private func settleMovedFile(_ node: Node, _ context: WorkerContext) throws(Errno) {
        guard let link = node.link, node.allLinks.count == 1 else { return }
        let directoryID = try backing.directoryState(of: link.parent).id
        let file = try acquire(node, context).file
        defer { release(file, context) }
        try file.withWriteAccess { access throws(Errno) in
            let before = try storage.fstat(file.descriptor)
            guard file.isWritable, before.st_nlink == 1, node.link?.parent === link.parent,
                var header = file.header
            else { return }
            if header.directoryID == directoryID {
                // A durable point came after the header.
                return try storage.removexattr(file.descriptor, FilePlaces.attributeName)
            }
            header.directoryID = directoryID
            if file.sizeBytes > 0 {
                try replaceHeader(access, header)
            } else {
                access.headers.put(storedHeader(header))
                try writeKeylessPage(access)
            }
            try storage.setTimes(
                file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                modification: before.st_mtim)
            durability.moved.note(node) { nodes.table.retain($0) }
        }
    }
}
