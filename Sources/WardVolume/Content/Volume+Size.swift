import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

// Growing and shrinking.
extension Volume {
    /// Sets the size in bytes, ftruncate(2). Throws `EFBIG` beyond the format's limit.
    func setSize(
        _ access: borrowing FileWriteAccess, to newSize: Int, _ operation: ContentOperation,
        _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        guard file.isWritable else { throw .readOnlyFileSystem }
        guard newSize <= PageLayout.maximumSizeBytes else { throw .fileTooLarge }
        let oldSize = file.sizeBytes
        if newSize > oldSize {
            try extend(access, to: newSize, operation, caller, context)
        } else {
            try askGate(file, operation, caller, context)
            if newSize == 0 {
                try makeEmpty(access)
            } else if newSize < oldSize {
                try shrink(access, to: newSize, operation, caller, context)
            } else {
                try touch(access)
            }
        }
    }

    /// Sets the times after a truncation to the present size, as ftruncate(2) does.
    func touch(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        try storage.setTimes(
            file.descriptor, access: timespec(tv_sec: 0, tv_nsec: ward_utime_omit()),
            modification: timespec(tv_sec: 0, tv_nsec: ward_utime_now()))
        file.times.touched()
    }

    /// Truncates the file to no bytes.
    func makeEmpty(_ access: borrowing FileWriteAccess) throws(Errno) {
        let file = access.file
        settle(file)
        if file.sizeBytes == 0 {
            if file.header == nil { try storage.ftruncate(file.descriptor, 0) }
            try touch(access)
            return
        }
        if try keepsHeader(file) {
            let protectionClass = file.protectionClass
            let before = file.extent
            access.extent.emptied()
            do throws(Errno) {
                try makeKeylessHeader(access, protectionClass, keepsTimes: false)
            } catch {
                access.extent = before
                throw error
            }
        } else {
            try storage.ftruncate(file.descriptor, 0)
            access.extent.emptied()
            access.extent.cut()
            // Without a list of places, the header's directory has all names.
            if bindsPlaces, let header = file.headers.bound {
                access.headers.moved(to: header.directoryID)
            }
            access.headers.put(nil)
            file.key.forget()
        }
        file.notes.isBeyondDoubt.value = true
        noteChange(access)
    }

    /// Whether an empty file has to keep its header. It does if its class is not its directory's,
    /// or may not be after a power cut. Attributes, which are bound to the header's ID, and further
    /// names keep it, too.
    private func keepsHeader(_ file: OpenFile) throws(Errno) -> Bool {
        guard let link = file.node.link else { return true }
        guard try backing.directoryState(of: link.parent).gives(file.protectionClass) else {
            return true
        }
        // After a power cut the file may again have its name in a directory of another class.
        if durability.unsynced.movedFiles.contains(file.node.inode) { return true }
        if try storage.fstat(file.descriptor).st_nlink > 1 { return true }
        let size =
            (try? storage.listxattr(
                file.descriptor, UnsafeMutableRawBufferPointer(start: nil, count: 0))) ?? 1
        return size > 0
    }

    private func shrink(
        _ access: borrowing FileWriteAccess, to newSize: Int, _ operation: ContentOperation,
        _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        let oldPages = layout.pageCount(forSize: file.sizeBytes)
        let newLast = layout.pageCount(forSize: newSize) - 1
        let pageBytes = layout.pageBytes
        try readPage(file, newLast, to: context.sealed)
        try examine(file, page: newLast, context.sealed, operation, caller, context)
        let length = newSize - layout.start(ofPage: newLast)
        let capacity = layout.capacity(ofPage: newLast)
        let outer = durability.epochInUse(by: context)
        defer { durability.endWrite(context, backTo: outer) }
        try withContent(of: file, operation, caller, context) { content throws(Errno) in
            let epochNow = sealingEpoch(file, durability.beginWrite(context))
            content.usePlain(pageBytes)
            try decode(file, page: newLast, context.sealed, to: context.plain, content)
            (context.plain + length).initializeMemory(
                as: UInt8.self, repeating: 0, count: capacity - length)
            let nonce = context.freshNonce()
            try withSealingCipher(of: file, epoch: epochNow, content) { cipher throws(Errno) in
                seal(
                    context.plain, page: newLast, length: length, isFinal: true, epoch: epochNow,
                    nonce: nonce, to: context.sealed + layout.recordOffset(ofPage: newLast), cipher)
            }
            if newLast == 0 {
                context.sealed.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            }
        }
        settle(file)
        if file.extent.tail != .none { try removeHint(access) }
        try storage.pwrite(file.descriptor, context.sealed, pageBytes, at: newLast * pageBytes)
        // Bytes behind a FINAL page are not part of the file, cut or not: that page tells the size.
        access.extent.endWritten(sizeBytes: newSize)
        noteChange(access)
        if oldPages > newLast + 1 {
            // The new end must be durable before the old one goes: a power cut in between would
            // look like a truncation.
            access.extent.shrunk()
            do throws(Errno) {
                try syncData(access)
                access.extent.endSynced()
                access.syncState.cutMade()
                try storage.ftruncate(file.descriptor, (newLast + 1) * pageBytes)
                access.extent.cut()
            } catch {
                // Old pages must not come back when the file grows: they are cut before the next
                // change of size.
                noteHalfDone(file)
                throw error
            }
        }
    }

    /// Extends the file with zeros: a real last page, and holes in between.
    func extend(
        _ access: borrowing FileWriteAccess, to newSize: Int, _ operation: ContentOperation,
        _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        let file = access.file
        guard file.isWritable else { throw .readOnlyFileSystem }
        guard newSize <= PageLayout.maximumSizeBytes else { throw .fileTooLarge }
        let newLast = layout.pageCount(forSize: newSize) - 1
        if file.sizeBytes == 0, newLast > 0 {
            // Page 0 carries the header and is never a hole.
            try rewrite(
                access, from: 0, to: layout.firstCapacity, source: .zeros,
                newSize: layout.firstCapacity, operation, caller, context)
            do throws(Errno) {
                try extend(access, to: newSize, operation, caller, context)
            } catch {
                // A failed call adds nothing.
                try? makeEmpty(access)
                throw error
            }
            return
        }
        let oldSize = file.sizeBytes
        let oldLast = layout.pageCount(forSize: oldSize) - 1
        if newLast <= oldLast + 1 {
            try rewrite(
                access, from: oldSize, to: newSize, source: .zeros, newSize: newSize, operation,
                caller, context)
            return
        }
        try askGate(file, operation, caller, context)
        try settleKey(access, before: newLast)
        try makeSparse(access)
        // Write the new last page first, beyond the end. Then the old one loses FINAL and grows to
        // its full length.
        let pageBytes = layout.pageBytes
        let sealed = context.sealed
        try readPage(file, oldLast, to: sealed)
        try examine(file, page: oldLast, sealed, operation, caller, context)
        let outer = durability.epochInUse(by: context)
        defer { durability.endWrite(context, backTo: outer) }
        try withContent(of: file, operation, caller, context) { content throws(Errno) in
            try sealEnds(file, oldLast, newLast, newSize, content)
            if oldLast == 0 {
                sealed.copyMemory(from: file.headerBytes, byteCount: FileHeader.bytes)
            }
        }
        settle(file)
        if file.extent.tail != .none { try removeHint(access) }
        do throws(Errno) {
            try storage.pwrite(
                file.descriptor, sealed + pageBytes, pageBytes, at: newLast * pageBytes)
        } catch {
            cutBack(access, oldLast)
            throw error
        }
        do throws(Errno) {
            try storage.pwrite(file.descriptor, sealed, pageBytes, at: oldLast * pageBytes)
        } catch {
            cutBack(access, oldLast)
            access.extent.endTorn()
            throw error
        }
        access.extent.endWritten(sizeBytes: newSize)
        noteChange(access)
    }

    /// Seals both ends of an extension. The old last page, which is in `context.sealed`, gets its
    /// full length. Behind it in the buffer follows the new last page, of zeros.
    private func sealEnds(
        _ file: OpenFile, _ oldLast: Int, _ newLast: Int, _ newSize: Int,
        _ content: borrowing ContentAccess
    ) throws(Errno) {
        let context = content.context
        let pageBytes = layout.pageBytes
        let sealed = context.sealed
        let epochNow = sealingEpoch(file, durability.beginWrite(context))
        content.usePlain(2 * pageBytes)
        try decode(file, page: oldLast, sealed, to: context.plain, content)
        let zeros = context.plain + pageBytes
        zeros.initializeMemory(as: UInt8.self, repeating: 0, count: pageBytes)
        var nonce = context.freshNonce()
        try withSealingCipher(of: file, epoch: epochNow, content) { cipher throws(Errno) in
            seal(
                context.plain, page: oldLast, length: layout.capacity(ofPage: oldLast),
                isFinal: false, epoch: epochNow, nonce: nonce,
                to: sealed + layout.recordOffset(ofPage: oldLast), cipher)
            nonce.0 &+= 1
            seal(
                zeros, page: newLast, length: newSize - layout.start(ofPage: newLast),
                isFinal: true, epoch: epochNow, nonce: nonce, to: sealed + pageBytes, cipher)
        }
    }

    /// Cuts off what a failed extension has left behind the last page.
    private func cutBack(_ access: borrowing FileWriteAccess, _ last: Int) {
        let file = access.file
        do throws(Errno) {
            access.syncState.cutMade()
            try storage.ftruncate(file.descriptor, (last + 1) * layout.pageBytes)
            access.extent.cut()
        } catch {
            access.extent.cutFailed()
            noteHalfDone(file)
        }
    }
}
