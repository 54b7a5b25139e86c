import CWardLinux
import Glibc
import WardFormat
import WardKeys
import WardSystem

/// The fate of a file in an upgrade.
package enum CarriedOver: Sendable {
    /// It was of format 2 before.
    case already
    case done
    /// It is of class B, and its key is not in memory.
    case locked
}

// Carrying over what is in a volume from format 1 to format 2 (docs/format.md §10.1). Each step
// leaves the old or the new structure, and both are read until the upgrade ends. File keys and
// pages stay as they are.
extension Volume {
    // MARK: Directories

    /// Carries over a directory's record and its attributes. Returns whether there was anything.
    package func carryOver(directory node: Node) throws(Errno) -> Bool {
        let state = try backing.directoryState(of: node)
        let descriptor = try backing.directoryDescriptor(of: node)
        return try withExtendedLifetime(descriptor) { () throws(Errno) in
            var hadRecord = false
            // The root's record was written when the volume was opened.
            if node !== root {
                hadRecord = try names.withRecordFixed(of: state) { () throws(Errno) in
                    try backing.carryOverRecord(of: node, state, descriptor.rawValue)
                }
            }
            let hadAttributes = try carryOverAttributes(descriptor.rawValue, owner: state.id)
            return hadRecord || hadAttributes
        }
    }

    /// The time at which names in a directory last changed.
    package func modificationTime(of directory: Node) throws(Errno) -> timespec {
        let descriptor = try backing.directoryDescriptor(of: directory)
        return try withExtendedLifetime(descriptor) { () throws(Errno) in
            try storage.fstat(descriptor.rawValue).st_mtim
        }
    }

    /// Gives a directory its time back: a new record, or a link in another one's place, changes no
    /// name.
    package func restore(
        modificationTime time: timespec, of directory: Node
    ) throws(Errno) {
        let descriptor = try backing.directoryDescriptor(of: directory)
        try withExtendedLifetime(descriptor) { () throws(Errno) in
            let now = try storage.fstat(descriptor.rawValue).st_mtim
            if now.tv_sec == time.tv_sec, now.tv_nsec == time.tv_nsec { return }
            try storage.setTimes(
                descriptor.rawValue, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                modification: time)
        }
    }

    // MARK: Files

    /// Carries over the header and the attributes of a file. `parent`: the directory of its only
    /// name; of several names, one that `listPlaces` left out. `nameCount`: the number of its names
    /// that are known. Throws `EBUSY` if it has another number of names.
    package func carryOver(
        file node: Node, in parent: Node, nameCount: Int, _ context: WorkerContext
    ) throws(Errno) -> CarriedOver {
        let directoryID = try backing.directoryState(of: parent).id
        // The name can't move to another directory meanwhile.
        return try names.directoryMoves.withReadLock { () throws(Errno) in
            let file = try acquire(node, context).file
            defer { release(file, context) }
            return try file.withWriteAccess { access throws(Errno) in
                let hadAttributes = try carryOverAttributes(
                    file.descriptor, owner: file.header?.fileID)
                guard let stored = file.headers.stored, stored.format == .version1 else {
                    return hadAttributes ? .done : .already
                }
                let before = try storage.fstat(file.descriptor)
                guard file.isWritable else { throw .readOnlyFileSystem }
                guard Int(before.st_nlink) == nameCount else { throw .resourceBusy }
                guard let header = try carriedHeader(of: file, stored.header, directoryID, context)
                else { return .locked }
                try carryOver(access, to: header, before)
                return .done
            }
        }
    }

    /// The header of format 2. The file key stays; class B's is wrapped anew. Nil where that needs
    /// an unlock.
    private func carriedHeader(
        of file: OpenFile, _ old: FileHeader, _ directoryID: [UInt8], _ context: WorkerContext
    ) throws(Errno) -> FileHeader? {
        var header = old
        header.directoryID = directoryID
        guard header.protectionClass == .completeUnlessOpen, !header.wrappedKey.isEmpty else {
            return header
        }
        let isWrapped = try context.withContent { content throws(Errno) in
            guard gate.classes.state(of: .completeUnlessOpen) == .open else { return false }
            let key = try loadKey(file, content.context)
            do throws(KeyringError) {
                let wrapped = try keyring.wrap(key, for: .completeUnlessOpen, format: .version2)
                header.wrappedKey = wrapped.bytes
                header.capsuleID = wrapped.capsuleID
            } catch {
                throw error == .outOfLockedMemory ? .noMemory : .ioError
            }
            return true
        }
        return isWrapped ? header : nil
    }

    /// Writes page 0 with the header of format 2. A header is no content, so the times stay.
    private func carryOver(
        _ access: borrowing FileWriteAccess, to header: FileHeader, _ before: FileStatus
    ) throws(Errno) {
        let file = access.file
        try rewriteHeader(access, header, format: .version2)
        access.headers.moved(to: header.directoryID)
        try storage.setTimes(
            file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
            modification: before.st_mtim)
    }

    /// Writes the list of a file's directories without the one that its header will name. The list
    /// has to be durable before that header is written. Returns false where the file needs none.
    /// Throws `EMLINK` where there are too many.
    package func listPlaces(
        of node: Node, _ directoryIDs: [[UInt8]], _ context: WorkerContext
    ) throws(Errno) -> Bool {
        let file = try acquire(node, context).file
        defer { release(file, context) }
        return try file.withWriteAccess { _ throws(Errno) in
            guard let stored = file.headers.stored, stored.format == .version1,
                !directoryIDs.isEmpty
            else { return false }
            guard let places = FilePlaces(directoryIDs: directoryIDs) else { throw .tooManyLinks }
            try put(places, of: stored.header, file.descriptor)
            durability.dirt.noteChange()
            return true
        }
    }

    /// Whether a file that can't be carried over has a sound header of format 1, which the end of
    /// the upgrade would make unreadable. Throws where that can't be read now.
    package func hasVersion1Header(
        _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> Bool {
        let file = try storage.openat(
            directory, stored, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        return try backing.header(of: file)?.format == .version1
    }

    // MARK: Attributes

    /// Carries over the attributes of a FIFO, socket or device.
    package func carryOver(
        special stored: UnsafePointer<CChar>, in directory: Int32
    ) throws(Errno) -> Bool {
        let place = try storage.openPlace(directory, stored)
        defer { storage.close(place) }
        return try carryOverAttributes(place, owner: Volume.noOwnerID)
    }

    /// Seals the attributes of format 1 anew. Returns whether there were any.
    private func carryOverAttributes(
        _ descriptor: Int32, owner: [UInt8]?
    ) throws(Errno) -> Bool {
        guard keys.readsVersion1, let owner else { return false }
        var hadAny = false
        for name in try storedNames(descriptor) where Volume.isSealed(attribute: name) {
            let value = try storedValue(descriptor, name)
            guard let sealed = try carriedAttribute(value, owner, name) else { continue }
            try sealed.withUnsafeBytesTyped { bytes throws(Errno) in
                try storage.setxattr(descriptor, name, bytes, flags: Volume.replacesAttribute)
            }
            hadAny = true
        }
        if hadAny { durability.dirt.noteChange() }
        return hadAny
    }

    /// `XATTR_REPLACE`: an attribute that a program removed meanwhile does not come back.
    private static let replacesAttribute: Int32 = 2

    static func isSealed(attribute name: String) -> Bool {
        name.hasPrefix("user.w.") || name.hasPrefix("trusted.w.")
    }

    /// Seals the value of a stored attribute as format 2 does; nil where it is not of format 1.
    func carriedAttribute(
        _ value: [UInt8], _ owner: [UInt8], _ name: String
    ) throws(Errno) -> [UInt8]? {
        let associatedData = owner + Array(name.utf8)
        guard
            let plain = try? keys.version1?.attributes.open(value, associatedData: associatedData)
        else { return nil }
        var bytes = plain.withUnsafeBytes { [UInt8]($0) }
        defer { bytes.withUnsafeMutableBytes { explicit_bzero($0.baseAddress!, $0.count) } }
        return try bytes.withUnsafeBytesTyped { bytes throws(Errno) in
            try keys.attributes.seal(bytes, associatedData: associatedData)
        }
    }
}
