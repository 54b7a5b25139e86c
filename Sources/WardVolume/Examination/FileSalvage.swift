import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

/// A file that does not open, as far as it can be read.
package enum SalvagedFile {
    /// A later version made it: it must not be touched.
    case newer(String)
    /// The file may open in another lock state.
    case locked
    /// Nothing in it can be read, in any lock state.
    case lost(String)
    /// The file can be read with this `OpenFile`. `tail`: pages after its end.
    case readable(OpenFile, headerIsBad: Bool, reason: String, tail: Range<Int>)
}

/// Opens files that requests can't open, for a check.
///
/// A wrapped key authenticates by itself (RFC 3394), under one class key alone; pages authenticate
/// under the file key. So damage to a header outside of its wrapped key loses nothing: the class is
/// the one whose key opens.
///
/// Concurrency: any thread, with its own context; all properties are constant.
package struct FileSalvage: Sendable {
    private let volume: Volume
    private let shouldStop: @Sendable () -> Bool

    /// `shouldStop` ends long calls; any thread calls it.
    package init(_ volume: Volume, shouldStop: @escaping @Sendable () -> Bool) {
        self.volume = volume
        self.shouldStop = shouldStop
    }

    /// Runs `body` while opens of the file fail with `EIO`, as before. False where a program has it
    /// open after all. Takes the node's open lock, not while `body` runs.
    package func whileItDoesNotOpen(_ node: Node, _ body: () -> Void) -> Bool {
        let isOpen = node.openLock.withLock {
            node.isSalvaged = node.file == nil
            return !node.isSalvaged
        }
        if isOpen { return false }
        defer { node.openLock.withLock { node.isSalvaged = false } }
        body()
        return true
    }

    /// Opens a file as far as it can be read. Called inside `whileItDoesNotOpen`. `parent`: the
    /// directory of one of its names. A readable file needs `close`.
    package func open(
        _ node: Node, in parent: Node, _ context: WorkerContext
    ) throws(Errno) -> SalvagedFile {
        let (descriptor, _, isWritable) = try volume.backing.open(node)
        var isHandedOver = false
        defer { if !isHandedOver { volume.storage.close(descriptor) } }
        let pageBytes = volume.layout.pageBytes
        let size = Int(try volume.storage.fstat(descriptor).st_size)
        return try volume.withTemporaryPage { page throws(Errno) -> SalvagedFile in
            _ = try volume.storage.pread(descriptor, page, pageBytes, at: 0)
            if volume.isZero(page, pageBytes) {
                return .lost("its first page, with the header, was wiped")
            }
            var reason = "its end is damaged"
            var header: FileHeader?
            do throws(FormatError) {
                header = try volume.keys.header(reading: page)
            } catch {
                if error.code == .newerVersion { return .newer(error.description) }
                reason = "its header is damaged"
            }
            let headerIsBad = header == nil
            let directory = parent.directory ?? volume.root.directory!
            guard
                let candidate = try headerThatOpens(header, page, directory.id, context)
            else { return hasAllClasses && headerIsBad ? .lost(reason) : .locked }
            let found = candidate.header
            if found.isSparse, !candidate.isProven {
                reason += "; whether pages without data are holes or were wiped can't be told"
            }
            // From here on `file` owns the descriptor, and closes it.
            let file = OpenFile(
                node: node,
                backing: BackingFile(volume.storage, descriptor, isWritable: isWritable),
                protectionClass: found.protectionClass,
                FileBeginning(
                    headers: FileHeaderState(
                        directoryID: directory.id, volume.storedHeader(found, candidate.format)),
                    extent: .salvaged, seal: volume.seals.unjudged))
            isHandedOver = true
            volume.nodes.open.examined.withLock { $0[ObjectIdentifier(file)] = file }
            var isReadable = false
            defer { if !isReadable { close(file) } }
            let pages = max(1, size / pageBytes)
            guard let (last, length) = try lastReadablePage(file, pages, context) else {
                return .lost("\(reason), and no page authenticates")
            }
            if let claimed = try claimedSize(file, pages) {
                // As with a sound header: pages that do not authenticate are holes in the file, not
                // its end.
                file.withWriteAccess { $0.extent.salvaged(sizeBytes: claimed) }
                isReadable = true
                return .readable(file, headerIsBad: headerIsBad, reason: reason, tail: 0..<0)
            }
            let size = volume.layout.start(ofPage: last) + length
            file.withWriteAccess { $0.extent.salvaged(sizeBytes: size) }
            isReadable = true
            return .readable(
                file, headerIsBad: headerIsBad, reason: reason,
                tail: last + 1..<max(pages, last + 1))
        }
    }

    /// Ends the use of a readable file: a lock has no key of the file to wipe any more.
    package func close(_ file: OpenFile) {
        file.key.forget()
        volume.nodes.open.examined.withLock { _ = $0.removeValue(forKey: ObjectIdentifier(file)) }
    }

    // MARK: The header

    private var hasAllClasses: Bool {
        ProtectionClass.allCases.allSatisfy { volume.gate.classes.state(of: $0) == .open }
    }

    private struct Candidate {
        let header: FileHeader
        let format: VolumeFormat
        /// It has only what ward wrote.
        let isProven: Bool
    }

    /// Returns the header, or a header from its remains, if the class key opens its wrapped key.
    ///
    /// The keybag holds class B's public key in clear. A program that can write to the backing
    /// store can wrap its own key with it, and seal any content under that. So for class B the
    /// header's authentication code must be right but for the damage.
    private func headerThatOpens(
        _ header: FileHeader?, _ page: UnsafeRawPointer, _ parentID: [UInt8],
        _ context: WorkerContext
    ) throws(Errno) -> Candidate? {
        var candidates: [Candidate] = []
        if let header {
            let format = volume.keys.headerFormat(page)
            candidates = [Candidate(header: header, format: format, isProven: true)]
        } else {
            for format in volume.keys.readsVersion1 ? VolumeFormat.allCases : [volume.keys.format] {
                candidates += ProtectionClass.allCases.map { remains(page, $0, format, parentID) }
            }
        }
        for candidate in candidates
        where !candidate.header.wrappedKey.isEmpty
            && (candidate.isProven || candidate.header.protectionClass != .completeUnlessOpen)
        {
            let capsule = volume.gate.capsules?.fetch(candidate.header.capsuleID)
            let opens = try context.withContent { content throws(Errno) in
                try classKeyOpens(candidate, capsule, content)
            }
            if opens { return candidate }
        }
        return nil
    }

    /// Whether the class key is there and opens the header's wrapped key.
    private func classKeyOpens(
        _ candidate: Candidate, _ capsule: Capsule?, _ content: borrowing ContentAccess
    ) throws(Errno) -> Bool {
        let header = candidate.header
        guard volume.gate.classes.state(of: header.protectionClass) == .open else { return false }
        do throws(KeyringError) {
            try header.wrappedKey.withUnsafeBytesTyped { bytes throws(KeyringError) in
                _ = try volume.keyring.unwrap(
                    bytes, for: header.protectionClass, capsule: capsule,
                    format: candidate.format)
            }
            return true
        } catch {
            if error == .outOfLockedMemory { throw .noMemory }
            return false
        }
    }

    /// Reads a damaged header as one of this class. Compares its authentication code with those of
    /// possible originals: constants are known, and the few flags and directories are tried. Where
    /// most of the code is right, so is the header.
    private func remains(
        _ page: UnsafeRawPointer, _ protectionClass: ProtectionClass, _ format: VolumeFormat,
        _ parentID: [UInt8]
    ) -> Candidate {
        let bytes = UnsafeRawBufferPointer(start: page, count: FileHeader.bytes)
        let keyBytes = protectionClass == .completeUnlessOpen ? 72 : 40
        let read = FileHeader(
            protectionClass: protectionClass, isSparse: bytes[13] & 1 != 0,
            fileID: [UInt8](bytes[16..<32]), directoryID: [UInt8](bytes[32..<48]),
            wrappedKey: [UInt8](bytes[48..<48 + keyBytes]),
            capsuleID: protectionClass == .completeUnlessOpen && format >= .version2
                ? [UInt8](bytes[FileHeader.capsuleOffset..<FileHeader.capsuleEnd]) : Capsule.noID,
            seal: format >= .version2
                ? [UInt8](bytes[FileHeader.sealOffset..<FileSalvage.codeOffset])
                : ClassSeal.noFileSeal)
        for isSparse in [read.isSparse, !read.isSparse] {
            for directoryID in [read.directoryID, parentID] {
                var candidate = read
                candidate.isSparse = isSparse
                candidate.directoryID = directoryID
                let right = zip(volume.headerBytes(candidate, format), bytes).dropFirst(
                    FileSalvage.codeOffset
                ).count { $0 == $1 }
                if right >= FileSalvage.rightCodeBytes {
                    return Candidate(header: candidate, format: format, isProven: true)
                }
            }
        }
        return Candidate(header: read, format: format, isProven: false)
    }

    /// The bytes that must be right, of 32 in a header's authentication code: 192 bits can't be
    /// guessed.
    private static let rightCodeBytes = 24
    private static let codeOffset = 224

    // MARK: The end

    /// Returns the size that the last page claims, authentic or not; nil where that is impossible.
    private func claimedSize(_ file: OpenFile, _ pages: Int) throws(Errno) -> Int? {
        let layout = volume.layout
        guard let last = try volume.lastPageWithData(file.descriptor, before: pages), last >= 0
        else { return nil }
        return try volume.withTemporaryPage { page throws(Errno) -> Int? in
            try volume.readPage(file, last, to: page)
            let prefix = RecordPrefix(reading: page + layout.recordOffset(ofPage: last))
            guard prefix.length > 0, Int(prefix.length) <= layout.capacity(ofPage: last),
                layout.start(ofPage: last) < PageLayout.maximumSizeBytes - layout.capacity
            else { return nil }
            return layout.start(ofPage: last) + Int(prefix.length)
        }
    }

    /// Searches for a file's end. Each goes through the longest run of zeros that any search goes
    /// through.
    private static let mostSearches = 4

    /// Returns the last page that authenticates, and its length. Searches from the end, or from the
    /// beginning where there is no end of zeros.
    private func lastReadablePage(
        _ file: OpenFile, _ pages: Int, _ context: WorkerContext
    ) throws(Errno) -> (page: Int, length: Int)? {
        var end = pages
        var searches = 0
        while end > 0 {
            if shouldStop() { throw .canceled }
            switch try volume.previousPageWithData(file.descriptor, before: end) {
            case .page(let page):
                if let length = try readableLength(file, page, context) { return (page, length) }
                end = page
            case .none: return nil
            case .tooManyZeros(let reached):
                // Zeros have no end where the backing store can't tell them from holes.
                searches += 1
                if searches == FileSalvage.mostSearches {
                    return try lastReadablePageFromTheBeginning(file, reached, context)
                }
                end = reached
            }
        }
        return nil
    }

    private func lastReadablePageFromTheBeginning(
        _ file: OpenFile, _ end: Int, _ context: WorkerContext
    ) throws(Errno) -> (page: Int, length: Int)? {
        var found: (page: Int, length: Int)?
        try volume.withTemporaryPage { buffer throws(Errno) in
            var next = 0
            while case .page(let page) = try volume.nextPageWithData(
                file.descriptor, from: next, before: end, to: buffer)
            {
                if shouldStop() { throw .canceled }
                if let length = try readableLength(file, page, context) { found = (page, length) }
                next = page + 1
            }
        }
        return found
    }

    /// Returns the length of a page that authenticates; nil for any other.
    private func readableLength(
        _ file: OpenFile, _ page: Int, _ context: WorkerContext
    ) throws(Errno) -> Int? {
        let layout = volume.layout
        try volume.readPage(file, page, to: context.sealed)
        let record = context.sealed + layout.recordOffset(ofPage: page)
        let prefix = RecordPrefix(reading: record)
        let opens = try context.withContent { content throws(Errno) in
            guard volume.isAdmitted(file) else { throw Errno.notPermitted }
            content.usePlain(layout.pageBytes)
            return try volume.open(
                record, page: page, of: file, to: context.plain, content)
        }
        guard opens, prefix.length > 0,
            Int(prefix.length) <= layout.capacity(ofPage: page)
        else { return nil }
        return Int(prefix.length)
    }
}
