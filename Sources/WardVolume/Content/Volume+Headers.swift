import CWardLinux
import Glibc
import WardFormat
import WardKeys
import WardSystem

// File headers: making them with a key or without, and writing page 0 with another header.
extension Volume {
    /// Makes a fresh file key and the header that carries it. The header reaches the backing store
    /// with the next page that is written.
    func makeKey(
        _ access: borrowing FileWriteAccess, _ content: borrowing ContentAccess
    ) throws(Errno) {
        let file = access.file
        let format = file.headers.stored?.format ?? keys.format
        let key = try SecretBytes(random: 32)
        let wrapped: WrappedKey
        do throws(KeyringError) {
            wrapped = try gate.keyring.wrap(key, for: file.protectionClass, format: format)
        } catch {
            throw error == .unavailable ? .notPermitted : .noMemory
        }
        var header =
            file.header
            ?? FileHeader(
                protectionClass: file.protectionClass, fileID: SystemRandom.bytes(16),
                directoryID: file.headers.directoryID)
        header.protectionClass = file.protectionClass
        header.wrappedKey = wrapped.bytes
        header.capsuleID = wrapped.capsuleID
        header.isSparse = false
        // The seal covers this key, which no other person knows.
        if file.notes.seal.value == .passed, file.protectionClass != .none, seals.areOpen {
            file.notes.seal.value = .right
        }
        access.headers.put(storedHeader(header, of: file))
        access.headers.keyChanged()
        file.key.set(key, content)
        file.node.protectionClass = file.protectionClass
    }

    /// The header of an open file as it is stored, with the seal that its class may have. `format`:
    /// nil for that of the header it replaces, else the volume's. A header of format 1 stays one
    /// until the upgrade carries the file over: that knows all of its directories.
    func storedHeader(
        _ header: FileHeader, of file: OpenFile, format: VolumeFormat? = nil
    ) -> StoredHeader {
        let format = format ?? file.headers.stored?.format ?? keys.format
        guard format >= .version2 else { return storedHeader(header, format) }
        if seals.notes.areAny || !seals.areOpen {
            for link in file.node.allLinks { backing.noteChange(in: link.parent) }
        }
        return storedHeader(
            seals.sealed(
                header, replacing: file.headers.bound, file.notes.seal.value,
                inode: file.node.inode, origin: file.notes.origin), format)
    }

    /// The header as it is stored, with the seal that it has.
    func storedHeader(_ header: FileHeader, _ format: VolumeFormat) -> StoredHeader {
        StoredHeader(
            header: header, bytes: headerBytes(header, format), format: format,
            capsule: gate.capsules?.known(header.capsuleID))
    }

    func headerBytes(_ header: FileHeader, _ format: VolumeFormat) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: FileHeader.bytes) { out, count in
            header.write(to: out.baseAddress!, macKey: keys.headers, format: format)
            count = FileHeader.bytes
        }
    }

    /// Writes a header without a key for an empty file, which fixes its class and ID. Does not
    /// sync. A header is no content: with `keepsTimes` the file's times stay. Only a file that was
    /// just emptied gets new times.
    func makeKeylessHeader(
        _ access: borrowing FileWriteAccess, _ protectionClass: ProtectionClass,
        keepsTimes: Bool = true
    ) throws(Errno) {
        let file = access.file
        let isFirst = file.header == nil
        if isFirst { durability.unsynced.headers.begin() }
        defer { if isFirst { durability.unsynced.headers.end() } }
        try writeKeylessHeader(access, protectionClass, keepsTimes: keepsTimes)
    }

    /// Like `makeKeylessHeader`, and syncs. A file that has a header keeps it.
    func makeDurableHeader(
        _ access: borrowing FileWriteAccess, _ protectionClass: ProtectionClass
    ) throws(Errno) {
        let file = access.file
        guard file.header == nil else { return try syncData(access) }
        durability.unsynced.headers.begin()
        var isDurable = false
        defer { durability.unsynced.headers.end(isDurable: isDurable) }
        try writeKeylessHeader(access, protectionClass, keepsTimes: true)
        try syncData(access)
        isDurable = true
    }

    private func writeKeylessHeader(
        _ access: borrowing FileWriteAccess, _ protectionClass: ProtectionClass, keepsTimes: Bool
    ) throws(Errno) {
        let file = access.file
        precondition(file.sizeBytes == 0)
        judgeBeforeHeader(of: file)
        guard file.isWritable else { throw .readOnlyFileSystem }
        let before = keepsTimes ? try storage.fstat(file.descriptor) : nil
        let old = file.headers.stored
        access.headers.put(
            storedHeader(
                FileHeader(
                    protectionClass: protectionClass,
                    fileID: old?.header.fileID ?? SystemRandom.bytes(16),
                    directoryID: old?.header.directoryID ?? file.headers.directoryID),
                of: file))
        do throws(Errno) {
            try writeKeylessPage(access)
        } catch {
            access.headers.put(old)
            throw error
        }
        file.key.forget()
        access.headers.keyChanged()
        access.protectionClass = protectionClass
        file.node.protectionClass = protectionClass
        if let before {
            try? storage.setTimes(
                file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
                modification: before.st_mtim)
        }
    }

    /// Writes page 0 with the header and an empty record, and cuts off everything behind it.
    func writeKeylessPage(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        settle(file)
        try withTemporaryPage { page throws(Errno) in
            page.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            // The new page 0 alone makes the file empty. The pages behind it are cut after it, or
            // before the next change if that fails now.
            let backingBytes = Int(try storage.fstat(file.descriptor).st_size)
            try storage.pwrite(file.descriptor, page, layout.pageBytes, at: 0)
            let hadPages = backingBytes >= 2 * layout.pageBytes
            access.syncState.emptiedInPlace(
                hadPage: backingBytes >= layout.pageBytes, hadPages: hadPages)
            if hadPages {
                // The page must be durable before the others go: a power cut in between would look
                // like a truncation.
                do throws(Errno) {
                    try syncData(access)
                } catch {
                    return access.extent.cutFailedBehindHeader(needsSync: true)
                }
            }
            do throws(Errno) {
                try storage.ftruncate(file.descriptor, layout.pageBytes)
                access.extent.cut()
            } catch {
                access.extent.cutFailedBehindHeader(needsSync: false)
            }
        }
        durability.dirt.noteChange()
    }

    /// Makes a cut durable before the file gets another key. Pages that a power cut brings back
    /// would be unreadable under that key. Page 0 is overwritten in place, so no journal orders it
    /// after the cut.
    func settleCut(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        guard file.syncState.isCutUnsynced || file.extent.needsSyncBeforeCut else { return }
        if file.extent.tail != .none { try removeHint(access) }
        guard file.syncState.isCutUnsynced else { return }
        try syncData(access)
        access.syncState.cutSynced()
    }

    /// Makes the new page 0 durable before pages are written behind it, up to page `last`.
    func settleKey(_ access: borrowing FileWriteAccess, before last: Int) throws(Errno) {
        let file = access.file
        guard file.syncState.isKeyUnsynced, last > 0 else { return }
        try syncData(access)
    }

    /// Writes page 0 again with another header and the same record. The file has data. Throws `EIO`
    /// if page 0 is not as this file wrote it. `isProven`: the file's key opened the record, so any
    /// header may be there. `format`: nil for that of the present header.
    func replaceHeader(
        _ access: borrowing FileWriteAccess, _ header: FileHeader, isProven: Bool = false,
        format: VolumeFormat? = nil
    ) throws(Errno) {
        let file = access.file
        guard file.isWritable else { throw .readOnlyFileSystem }
        settle(file)
        let new = storedHeader(header, of: file, format: format)
        try withTemporaryPage { page throws(Errno) in
            try readPage(file, 0, to: page)
            // This header on the record of another key would make that record unreadable.
            guard isProven || file.headers.isOwnRecord(page) else { throw .ioError }
            page.copyMemory(from: new.bytes, byteCount: FileHeader.bytes)
            access.headers.willReplace(with: new.bytes)
            try storage.pwrite(file.descriptor, page, layout.pageBytes, at: 0)
        }
        access.headers.replaced(with: new)
        durability.dirt.noteChange()
    }

    func makeSparse(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        guard var header = file.header, !header.isSparse else { return }
        access.extent.becomesSparse()
        header.isSparse = true
        try replaceHeader(access, header)
    }
}
