import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

// Repairs of a file's content, and its attributes.
extension VolumeCheck {
    // MARK: Repairing content

    /// Makes pages of an open file readable again, with their content or with zeros. Returns where
    /// the quarantine keeps the old pages.
    func repair(
        _ file: OpenFile, _ bad: [BadPage], _ task: FileTask, _ context: WorkerContext
    ) throws(Errno) -> String? {
        try VolumeCheck.refuseToFill(bad)
        // The file's lock is not held: a write-back at a lock may need it. Each page is judged
        // again before it is replaced, and left if a program has written it meanwhile.
        let kept = try quarantine.keep(
            pages: [0..<1] + bad.map(\.pages), of: file.descriptor, pageNote(task, file, "pages"))
        for run in bad { for page in run.pages { try repair(file, page, context) } }
        try file.withWriteAccess { access throws(Errno) in try volume.syncData(access) }
        if file.node.cachedPages.exist.load(ordering: .relaxed) {
            volume.kernel?.invalidateContent(of: file.node.id)
        }
        return kept
    }

    /// Repairs one page. Judges it again under the lock: a program may have written it meanwhile.
    func repair(
        _ file: OpenFile, _ page: Int, _ context: WorkerContext
    ) throws(Errno) {
        let layout = volume.layout
        try file.withWriteAccess { access throws(Errno) in
            defer { context.excuses.forget() }
            guard page < layout.pageCount(forSize: file.sizeBytes),
                let bad = try judge(file, page..<page + 1, context).first
            else { return }
            let start = layout.start(ofPage: page)
            let (length, _) = volume.expectation(file, page)
            guard bad.state != .lost else {
                return try volume.store(
                    access, .zeros, offset: start, count: length, .mend, Caller.volume, context)
            }
            // Written through the ordinary path, from a copy that is wiped.
            try volume.readPage(file, page, to: context.sealed)
            context.excuses.note(page, of: file)
            try withUnsafeTemporaryAllocation(byteCount: length, alignment: 16) {
                copy throws(Errno) in
                let copy = copy.baseAddress!
                defer { explicit_bzero(copy, length) }
                try volume.withContent(of: file, .mend, Caller.volume, context) {
                    content throws(Errno) in
                    content.usePlain(layout.pageBytes)
                    try volume.decode(file, page: page, context.sealed, to: context.plain, content)
                    copy.copyMemory(from: context.plain, byteCount: length)
                }
                try volume.store(
                    access, .data(copy), offset: start, count: length, .mend,
                    Caller.volume, context)
            }
        }
    }

    // MARK: Attributes

    /// Finds attributes that do not authenticate with the owner's ID, and invalid records of a
    /// mode. Calls `owner` after reading them: a file gets its ID before its first attribute.
    func checkAttributes(
        of node: Node, _ descriptor: Int32, path: String, protectionClass: ProtectionClass? = nil,
        owner: () -> [UInt8]?
    ) {
        do throws(Errno) {
            var bad: [(name: String, value: [UInt8])] = []
            for name in try volume.storedNames(descriptor) {
                do throws(Errno) {
                    bad.append((name, try volume.storedValue(descriptor, name)))
                } catch .noData {
                }
            }
            let owner = owner()
            var isSound: [Bool] = []
            for (name, value) in bad { isSound.append(try self.isSound(name, value, owner)) }
            bad = zip(bad, isSound).filter { !$0.1 }.map(\.0)
            guard !bad.isEmpty else { return }
            let isExcused = node.isRegular && volume.isInDoubt
            add(
                CheckFinding(
                    isExcused ? .unclean : .attribute, path: path, protectionClass: protectionClass,
                    problem: bad.count == 1
                        ? "an extended attribute does not authenticate"
                        : "\(bad.count) extended attributes do not authenticate",
                    remedy: "moved to the quarantine")
            ) { () throws(Errno) in
                var kept: String?
                for (name, value) in bad {
                    // A program may have set it anew.
                    guard (try? volume.storedValue(descriptor, name)) == value else { continue }
                    kept = try quarantine.keep(
                        value, ["attribute \(name) of \(backingPath(of: node))"])
                    try volume.storage.removexattr(descriptor, name)
                }
                if let file = node.file {
                    let failures = file.syncs.failures
                    try volume.sync(file, dataOnly: false)
                    if file.syncs.failures != failures { throw file.syncs.lastFailure }
                } else {
                    try volume.storage.fsync(descriptor)
                }
                return kept
            }
        } catch {
            if !isGone(error, node) { note(unreachable: path, error) }
        }
    }

    func isSound(
        _ name: String, _ value: [UInt8], _ owner: [UInt8]?
    ) throws(Errno) -> Bool {
        if name == BackingMode.attributeName { return value.count == 2 }
        guard name.hasPrefix("user.w.") || name.hasPrefix("trusted.w.") else { return true }
        guard let owner else { return false }
        do throws(CryptoError) {
            _ = try volume.keys.attributes.openSecret(
                value, associatedData: owner + Array(name.utf8))
            return true
        } catch {
            if error == .outOfLockedMemory { throw .noMemory }
            return false
        }
    }
}
