import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Salvages files that don't open.
//
// A wrapped key authenticates by itself (RFC 3394), under one class key alone; pages authenticate
// under the file key. So damage to a header outside of its wrapped key loses nothing: the class is
// the one whose key opens.
extension VolumeCheck {
    private enum Salvaged {
        /// A later version made it: it must not be touched.
        case newer(String)
        /// The file may open in another lock state.
        case locked
        /// Nothing in it can be read, in any lock state.
        case lost(String)
        /// The file can be read with this `OpenFile`. `tail`: pages after its end.
        case readable(OpenFile, headerIsBad: Bool, reason: String, tail: Range<Int>)
    }

    /// Salvages a file while opens of it fail with `EIO`, as before. False where a program has it
    /// open after all.
    func salvage(_ task: FileTask, _ node: Node, _ context: WorkerContext) -> Bool {
        // Calls that may wait for the kernel, which may wait for one of our locks.
        var afterwards: [() -> Void] = []
        defer { for body in afterwards { body() } }
        let isOpen = node.openLock.withLock {
            node.isSalvaged = node.file == nil
            return !node.isSalvaged
        }
        if isOpen { return false }
        defer { node.openLock.withLock { node.isSalvaged = false } }
        tally.withLock { $0.report.progress.files += 1 }
        salvage(task, node, context, &afterwards)
        return true
    }

    private func salvage(
        _ task: FileTask, _ node: Node, _ context: WorkerContext, _ afterwards: inout [() -> Void]
    ) {
        let path = path(of: task)
        do throws(Errno) {
            switch try examine(task, node, context) {
            case .newer(let reason):
                tally.withLock {
                    $0.untouched.insert(task.inode)
                    $0.report.unreachable.append("\(path): \(reason)")
                }
            case .locked:
                tally.withLock { _ = $0.untouched.insert(task.inode) }
                add(
                    CheckFinding(
                        .header, path: path, problem: "its header is damaged",
                        remedy: "its class can only be told when all are unlocked",
                        outcome: .left("unlock, then check again")))
            case .lost(let reason):
                add(
                    CheckFinding(
                        .header, path: path, problem: "\(reason): nothing of it can be read",
                        remedy: "moved to the quarantine")
                ) { () throws(Errno) in
                    let (kept, forgetting) = try takeAway(task, reason)
                    afterwards.append(forgetting)
                    return kept
                }
            case .readable(let file, let headerIsBad, let reason, let tail):
                defer { endExamination(of: file) }
                try add(file, headerIsBad, reason, tail, task, path, context)
                afterwards.append { [volume] in
                    volume.kernel?.invalidateAttributes(of: node.id)
                }
            }
        } catch {
            tally.withLock { _ = $0.untouched.insert(task.inode) }
            if error == .notPermitted {
                add(
                    CheckFinding(
                        .header, path: path, problem: "it does not open",
                        remedy: "what of it can be read is only known when it is unlocked",
                        outcome: .left("unlock, then check again")))
            } else if !isGone(error, task.inode, task.parent, task.stored) {
                note(unreachable: path, error)
            }
        }
    }

    private func add(
        _ file: OpenFile, _ headerIsBad: Bool, _ reason: String, _ tail: Range<Int>,
        _ task: FileTask, _ path: String, _ context: WorkerContext
    ) throws(Errno) {
        let bad = try badPages(file, context)
        var finding = finding(headerIsBad ? .header : .content, bad, file, path, remedy: "")
        finding.problem = ([reason] + [finding.problem].filter { !$0.isEmpty })
            .joined(separator: "; ")
        if !tail.isEmpty { finding.problem += "; \(tail.count) pages at its end can't be read" }
        finding.remedy =
            finding.bytes.isEmpty
            ? "made readable: class \(file.protectionClass.letter), by the key that opens"
            : "made readable: these bytes become zeros, everything else is kept"
        // Until it is mended, it must not be taken away for its name.
        tally.withLock { _ = $0.untouched.insert(task.inode) }
        add(finding) { () throws(Errno) in
            guard file.isWritable, let header = file.header else { throw .readOnlyFileSystem }
            try VolumeCheck.refuseToFill(bad)
            let kept = try quarantine.keep(
                pages: [0..<1] + bad.map(\.pages) + [tail], of: file.descriptor,
                pageNote(task, file, "pages"))
            if headerIsBad {
                try file.withWriteAccess { access throws(Errno) in
                    try volume.replaceHeader(access, header, isProven: true)
                }
            }
            for run in bad { for page in run.pages { try repair(file, page, context) } }
            return try file.withWriteAccess { access throws(Errno) in
                // The end must be durable before pages behind it go.
                try volume.storage.fsync(file.descriptor)
                try volume.removeHint(access)
                volume.putHint(access)
                try volume.storage.fsync(file.descriptor)
                tally.withLock { _ = $0.untouched.remove(task.inode) }
                return kept
            }
        }
    }

    private func takeAway(
        _ task: FileTask, _ reason: String
    ) throws(Errno) -> (kept: String, forgetting: () -> Void) {
        let directory = try volume.backing.directoryDescriptor(of: task.parent)
        let status = try volume.storage.fstatat(directory.rawValue, task.stored)
        guard UInt64(status.st_ino) == task.inode else { throw .staleNFSFileHandle }
        let kept = try quarantine.move(
            directory.rawValue, task.stored,
            ["file: \(backingPath(task.parent, task.stored))", reason])
        tally.withLock { _ = $0.links.lost.insert(task.inode) }
        return (kept, forget(task.parent, task.stored, status))
    }

    // MARK: Examining

    private func examine(
        _ task: FileTask, _ node: Node, _ context: WorkerContext
    ) throws(Errno) -> Salvaged {
        let (descriptor, _, isWritable) = try volume.backing.open(node)
        var isHandedOver = false
        defer { if !isHandedOver { volume.storage.close(descriptor) } }
        let pageBytes = volume.layout.pageBytes
        let size = Int(try volume.storage.fstat(descriptor).st_size)
        return try volume.withTemporaryPage { page throws(Errno) -> Salvaged in
            _ = try volume.storage.pread(descriptor, page, pageBytes, at: 0)
            if volume.isZero(page, pageBytes) {
                return .lost("its first page, with the header, was wiped")
            }
            var reason = "its end is damaged"
            var header: FileHeader?
            do throws(FormatError) {
                header = try FileHeader(reading: page, macKey: volume.keys.headers)
            } catch {
                if error.code == .newerVersion { return .newer(error.description) }
                reason = "its header is damaged"
            }
            let headerIsBad = header == nil
            let directory = task.parent.directory ?? volume.root.directory!
            guard
                let (found, isProven) = try headerThatOpens(header, page, directory.id, context)
            else { return hasAllClasses && headerIsBad ? .lost(reason) : .locked }
            if found.isSparse, !isProven {
                reason += "; whether pages without data are holes or were wiped can't be told"
            }
            // From here on `file` owns the descriptor, and closes it.
            let file = OpenFile(
                node: node,
                backing: BackingFile(volume.storage, descriptor, isWritable: isWritable),
                protectionClass: found.protectionClass,
                FileBeginning(
                    headers: FileHeaderState(directoryID: directory.id, volume.storedHeader(found)),
                    extent: .salvaged))
            isHandedOver = true
            volume.nodes.open.examined.withLock { $0[ObjectIdentifier(file)] = file }
            var isReadable = false
            defer { if !isReadable { endExamination(of: file) } }
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

    /// Ends the examination: a lock has no key of the file to wipe any more.
    private func endExamination(of file: OpenFile) {
        file.key.forget()
        volume.nodes.open.examined.withLock { _ = $0.removeValue(forKey: ObjectIdentifier(file)) }
    }

    private var hasAllClasses: Bool {
        ProtectionClass.allCases.allSatisfy { volume.gate.classes.state(of: $0) == .open }
    }

    /// Returns the header, or a header from its remains, if the class key opens its wrapped key.
    /// `isProven`: it has only what ward wrote.
    ///
    /// The keybag holds class B's public key in clear. A program that can write to the backing
    /// store can wrap its own key with it, and seal any content under that. So for class B the
    /// header's authentication code must be right but for the damage.
    private func headerThatOpens(
        _ header: FileHeader?, _ page: UnsafeRawPointer, _ parentID: [UInt8],
        _ context: WorkerContext
    ) throws(Errno) -> (header: FileHeader, isProven: Bool)? {
        let candidates =
            header.map { [($0, true)] }
            ?? ProtectionClass.allCases.map { remains(page, $0, parentID) }
        for (candidate, isProven) in candidates
        where !candidate.wrappedKey.isEmpty
            && (isProven || candidate.protectionClass != .completeUnlessOpen)
        {
            let opens = try context.withContent { content throws(Errno) in
                try classKeyOpens(candidate, content)
            }
            if opens { return (candidate, isProven) }
        }
        return nil
    }

    /// Whether the class key is there and opens the header's wrapped key.
    private func classKeyOpens(
        _ header: FileHeader, _ content: borrowing ContentAccess
    ) throws(Errno) -> Bool {
        guard volume.gate.classes.state(of: header.protectionClass) == .open else { return false }
        do throws(KeyringError) {
            try header.wrappedKey.withUnsafeBytesTyped { bytes throws(KeyringError) in
                _ = try volume.keyring.unwrap(bytes, for: header.protectionClass)
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
        _ page: UnsafeRawPointer, _ protectionClass: ProtectionClass, _ parentID: [UInt8]
    ) -> (FileHeader, Bool) {
        let bytes = UnsafeRawBufferPointer(start: page, count: FileHeader.bytes)
        let keyBytes = protectionClass == .completeUnlessOpen ? 72 : 40
        let read = FileHeader(
            protectionClass: protectionClass, isSparse: bytes[13] & 1 != 0,
            fileID: [UInt8](bytes[16..<32]), directoryID: [UInt8](bytes[32..<48]),
            wrappedKey: [UInt8](bytes[48..<48 + keyBytes]))
        for isSparse in [read.isSparse, !read.isSparse] {
            for directoryID in [read.directoryID, parentID] {
                var candidate = read
                candidate.isSparse = isSparse
                candidate.directoryID = directoryID
                let right = zip(volume.headerBytes(candidate), bytes).dropFirst(
                    VolumeCheck.codeOffset
                ).count { $0 == $1 }
                if right >= VolumeCheck.rightCodeBytes { return (candidate, true) }
            }
        }
        return (read, false)
    }

    /// The bytes that must be right, of 32 in a header's authentication code: 192 bits can't be
    /// guessed.
    private static let rightCodeBytes = 24
    private static let codeOffset = 224

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
                if searches == VolumeCheck.mostSearches {
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
            return try volume.withCipher(of: file, content) { cipher throws(Errno) in
                volume.open(record, page: page, to: context.plain, cipher)
            }
        }
        guard opens, prefix.hasKnownFlags, prefix.length > 0,
            Int(prefix.length) <= layout.capacity(ofPage: page)
        else { return nil }
        return Int(prefix.length)
    }
}
