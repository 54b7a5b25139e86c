import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// The role of a file for an SQLite database, by its name (sqlite.org/tempfiles.html).
private enum SideFile {
    /// `X-wal`, `X-journal`, and `X-mj…`, which holds the names of the journals of one transaction.
    case content
    /// `X-shm`.
    case shared

    /// The class that it has beside a database of this class (row I12): `X-shm`, which holds no
    /// user data and is mapped by every reader, class C, or D where the database is D.
    func protectionClass(beside database: ProtectionClass) -> ProtectionClass {
        switch self {
        case .content: database
        case .shared: database == .none ? .none : .completeUntilFirstUserAuthentication
        }
    }

    /// With the number of bytes of the database's name; nil for a name that is no side file's.
    static func parse(_ name: UnsafeRawBufferPointer) -> (kind: SideFile, base: Int)? {
        let (kind, suffix): (SideFile, Int)
        if name.ends(with: "-wal") {
            (kind, suffix) = (.content, 4)
        } else if name.ends(with: "-shm") {
            (kind, suffix) = (.shared, 4)
        } else if name.ends(with: "-journal") {
            (kind, suffix) = (.content, 8)
        } else if isSuperJournal(name) {
            (kind, suffix) = (.content, superJournalSuffix)
        } else {
            return nil
        }
        return name.count > suffix ? (kind, name.count - suffix) : nil
    }

    /// `-mj` and nine hexadecimal digits (`vdbeCommit`, vdbeaux.c).
    private static let superJournalSuffix = 12

    private static func isSuperJournal(_ name: UnsafeRawBufferPointer) -> Bool {
        guard name.count > superJournalSuffix else { return false }
        let suffix = name.suffix(superJournalSuffix)
        return suffix.prefix(3).elementsEqual("-mj".utf8)
            && suffix.dropFirst(3).allSatisfy { isxdigit(Int32($0)) != 0 }
    }
}

// SQLite databases and the files that SQLite makes beside them.
extension Volume {
    /// The class of a new side file of an open database beside it; nil where it is none (row I12).
    ///
    /// `inherited`: the class that it has else. A database of another user makes no file weaker.
    func sideFileClass(
        _ parent: Node, _ state: DirectoryState, _ name: UnsafeRawBufferPointer,
        else inherited: ProtectionClass, _ caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> ProtectionClass? {
        guard let (kind, base) = SideFile.parse(name) else { return nil }
        try encryptName(
            UnsafeRawBufferPointer(rebasing: name[0..<base]), in: state.id, to: context.nameB)
        let directory = try directoryDescriptor(of: parent)
        let status: FileStatus
        do throws(Errno) {
            status = try storage.fstatat(directory.rawValue, context.nameB)
        } catch .noSuchFileOrDirectory {
            return nil
        }
        guard let database = table.find(inode: UInt64(status.st_ino)), let file = database.file,
            isDatabase(file, context)
        else { return nil }
        let own = kind.protectionClass(beside: file.protectionClass)
        // Whether a file without content is one is not known: no class is made weaker for it.
        let isOthers = servesOthers && caller.uid != 0 && status.st_uid != caller.uid
        if file.sizeBytes == 0 || isOthers, inherited.isStronger(than: own) { return nil }
        return own
    }

    /// Whether an open file begins as SQLite's do ("SQLite format 3\0",
    /// sqlite.org/fileformat.html), or has nothing in it: the first journal of a new database is
    /// there before its first page.
    ///
    /// A file that can't be looked at now is taken for one: a journal that would hold what it holds
    /// must not be of a weaker class for want of a look.
    private func isDatabase(_ file: OpenFile, _ context: WorkerContext) -> Bool {
        if file.isKnownDatabase { return true }
        file.lock.lockRead()
        defer { file.lock.unlock() }
        if file.sizeBytes == 0 { return true }
        guard file.sizeBytes >= 16 else { return false }
        guard isAdmitted(file) else { return true }
        guard (try? readPage(file, 0, to: context.sealed)) != nil,
            (try? examine(file, page: 0, context.sealed, .read, Volume.ownCaller, context)) != nil
        else { return true }
        defer { context.forgetExcuses() }
        context.lockContent()
        defer { context.unlockContent() }
        // The key of a class that is closing stays with its file for a moment after everybody's
        // ciphers were wiped.
        guard isAdmitted(file) else { return true }
        context.usePlain(layout.pageBytes)
        guard (try? decode(file, page: 0, context.sealed, to: context.plain, context)) != nil else {
            return true
        }
        let magic = UnsafeRawBufferPointer(start: context.plain, count: 16)
        file.isKnownDatabase = magic.elementsEqual(Array("SQLite format 3".utf8) + [0])
        return file.isKnownDatabase
    }

    /// Before a database gets a stronger class: gives its side files that class first, each
    /// atomically. Those of another owner stay as they are, and `ward audit` tells of them.
    func raiseSideFiles(
        of node: Node, to wanted: ProtectionClass, isSynced: Bool, _ caller: Caller,
        _ context: WorkerContext
    ) throws(Errno) {
        // Most files are no databases, and have nothing beside them.
        for link in node.allLinks {
            guard let directory = link.parent.directory,
                let name = plainNameBytes(of: link, in: directory)
            else { continue }
            for (suffix, kind) in [
                ("-journal", SideFile.content), ("-wal", .content), ("-shm", .shared),
            ] {
                guard name.count + suffix.utf8.count <= 255,
                    let side = try sideFile(name + Array(suffix.utf8), in: link.parent, context)
                else { continue }
                defer { table.release(side, lookups: 1) }
                let expected = kind.protectionClass(beside: wanted)
                guard try status(of: side).st_uid == status(of: node).st_uid,
                    expected.isStronger(than: try protectionClass(of: side, context)),
                    try isDatabase(node, context)
                else { continue }
                try setFileClass(of: side, to: expected, isSynced: isSynced, caller, context)
            }
        }
    }

    private func isDatabase(_ node: Node, _ context: WorkerContext) throws(Errno) -> Bool {
        let file = try acquire(node, context).file
        defer { release(file, context) }
        return isDatabase(file, context)
    }

    /// The regular file of this name, with one look-up more; nil where there is none.
    private func sideFile(
        _ name: [UInt8], in parent: Node, _ context: WorkerContext
    ) throws(Errno) -> Node? {
        let state = try directoryState(of: parent)
        let directory = try directoryDescriptor(of: parent)
        do throws(Errno) {
            try name.withUnsafeBytesTyped { name throws(Errno) in
                _ = try encryptName(name, in: state.id, to: context.nameB)
            }
            let status = try storage.fstatat(directory.rawValue, context.nameB)
            guard status.st_mode & S_IFMT == S_IFREG else { return nil }
            let node = table.retain(inode: UInt64(status.st_ino), type: S_IFREG)
            node.addFirstLink(parent, context.nameB)
            return node
        } catch .noSuchFileOrDirectory {
            return nil
        }
    }
}

extension UnsafeRawBufferPointer {
    fileprivate func ends(with suffix: StaticString) -> Bool {
        let size = suffix.utf8CodeUnitCount
        return count >= size && memcmp(baseAddress! + (count - size), suffix.utf8Start, size) == 0
    }
}
