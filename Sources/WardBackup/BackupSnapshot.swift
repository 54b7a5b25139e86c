import Glibc
import WardFormat
import WardSystem
import WardVolume

/// The state of a volume's files at one moment, for finding later which files have changed. Files
/// that backups leave out are not in it.
public struct BackupSnapshot {
    public struct Change: Equatable, Sendable {
        public enum Kind: String, Sendable { case created, modified, removed }
        public var kind: Kind
        /// Plaintext, from the volume's root; "?" in place of a name that can't be read any more.
        public var path: String
    }

    private struct Directory {
        var id: [UInt8]?
        var entries: [[UInt8]: BackupStamp] = [:]
    }

    private var directories: [[UInt8]: Directory] = [:]
    /// Files in the backup, without records and links of long names.
    public private(set) var fileCount = 0
    public private(set) var directoryCount = 0
    /// Entries that backups leave out, without links of long names.
    public private(set) var excludedCount = 0

    public init() {}

    /// Adds a directory of a walk that was run with `stamps`.
    public mutating func add(_ directory: BackupDirectory) {
        var kept = Directory(id: directory.id)
        if !directory.path.starts(with: "ward.".utf8) { directoryCount += 1 }
        for entry in directory.entries {
            if entry.exclusion != nil {
                if entry.name.first != UInt8(ascii: ".") { excludedCount += 1 }
                continue
            }
            guard let stamp = entry.stamp else { continue }
            kept.entries[entry.name] = stamp
            if entry.kind != .directory, !isOwn(entry.name, in: directory.path) { fileCount += 1 }
        }
        directories[directory.path] = kept
    }

    /// Looks again at the fresh entries (`BackupStamp.isFresh`), after a pause: from then on every
    /// later change shows.
    public mutating func settle(in backingPath: String) {
        let fresh = directories.flatMap { path, directory in
            directory.entries.compactMap { name, stamp in stamp.isFresh ? (path, name) : nil }
        }
        if fresh.isEmpty { return }
        usleep(useconds_t(2 * BackupStamp.tick.components.attoseconds / 1_000_000_000_000))
        for (path, name) in fresh {
            let place = Array(backingPath.utf8) + [UInt8(ascii: "/")]
            do throws(Errno) {
                let whole = NodeName(bytes: place + path.appending(component: name))
                let status = try whole.withCString { path throws(Errno) in
                    try Syscall.fstatat(AT_FDCWD, path)
                }
                directories[path]?.entries[name] = BackupStamp(status)
            } catch {
                // The kernel does not take a very long path. Such an entry stays fresh, and counts
                // as changed.
                if error == .noSuchFileOrDirectory { directories[path]?.entries[name] = nil }
            }
        }
    }

    /// Whether the bytes of a file in the root have changed.
    public func hasReplaced(_ rootFile: String, since before: BackupSnapshot) -> Bool {
        let name = Array(rootFile.utf8)
        guard let old = before.directories[[]]?.entries[name],
            let new = directories[[]]?.entries[name]
        else { return true }
        return !old.isSame(as: new)
    }

    /// Returns the files that have changed since `before`, by path. A directory is in it if it was
    /// made or removed, or has another class.
    public func changes(since before: BackupSnapshot, _ walk: BackupWalk) -> [Change] {
        let names = PlainNames(self, before, walk)
        var found: Set<FoundChange> = []
        for (path, directory) in directories {
            let old = before.directories[path]?.entries ?? [:]
            for (name, stamp) in directory.entries {
                if let known = old[name] {
                    if isChanged(known, stamp, name) { found.insert(.init(.modified, path, name)) }
                } else {
                    found.insert(.init(.created, path, name))
                }
            }
        }
        for (path, directory) in before.directories {
            let new = directories[path]?.entries ?? [:]
            for name in directory.entries.keys where new[name] == nil {
                found.insert(.init(.removed, path, name))
            }
        }
        var changes: Set<[String]> = []
        for change in found {
            guard let told = tell(change, found, names) else { continue }
            changes.insert([told.path, told.kind.rawValue])
        }
        return changes.sorted { $0.lexicographicallyPrecedes($1) }.compactMap { pair in
            Change.Kind(rawValue: pair[1]).map { Change(kind: $0, path: pair[0]) }
        }
    }

    private struct FoundChange: Hashable {
        var kind: Change.Kind
        var directory: [UInt8]
        var name: [UInt8]

        init(_ kind: Change.Kind, _ directory: [UInt8], _ name: [UInt8]) {
            self.kind = kind
            self.directory = directory
            self.name = name
        }
    }

    private func isChanged(_ old: BackupStamp, _ new: BackupStamp, _ name: [UInt8]) -> Bool {
        if old.type == S_IFDIR, new.type == S_IFDIR {
            // Changes inside a directory are reported one by one.
            return old.inode != new.inode
        }
        return old.isFresh || !old.isSame(as: new)
    }

    /// The change as people see it. A directory's record stands for the directory; the volume's own
    /// files are left out.
    private func tell(
        _ change: FoundChange, _ all: Set<FoundChange>, _ names: PlainNames
    ) -> Change? {
        if change.name.elementsEqual(DirectoryRecord.linkName.utf8) {
            // The directory's own change reports it.
            guard change.kind == .modified else { return nil }
            return Change(kind: .modified, path: names.path(of: change.directory))
        }
        if isOwn(change.name, in: change.directory) { return nil }
        return Change(
            kind: change.kind, path: names.path(of: change.name, in: change.directory))
    }

    /// Whether the name is ward's own: a record, the link of a long name, a file of ward's in the
    /// root.
    private func isOwn(_ name: [UInt8], in directory: [UInt8]) -> Bool {
        if name.first == UInt8(ascii: ".") || directory.starts(with: "ward.".utf8) { return true }
        return directory.isEmpty
            && (name.starts(with: "ward.".utf8) || name.elementsEqual("README".utf8))
    }

    /// Decrypts stored paths.
    private final class PlainNames {
        private let now: BackupSnapshot
        private let before: BackupSnapshot
        private let walk: BackupWalk
        private var known: [[UInt8]: String] = [[]: ""]

        init(_ now: BackupSnapshot, _ before: BackupSnapshot, _ walk: BackupWalk) {
            self.now = now
            self.before = before
            self.walk = walk
        }

        func path(of directory: [UInt8]) -> String {
            let path = inner(directory)
            return path.isEmpty ? "/" : path
        }

        func path(of name: [UInt8], in directory: [UInt8]) -> String {
            inner(directory) + "/" + plain(name, in: directory)
        }

        private func inner(_ directory: [UInt8]) -> String {
            if let path = known[directory] { return path }
            let slash = directory.lastIndex(of: UInt8(ascii: "/"))
            let parent = slash.map { Array(directory[..<$0]) } ?? []
            let name = slash.map { Array(directory[($0 + 1)...]) } ?? directory
            let path = inner(parent) + "/" + plain(name, in: parent)
            known[directory] = path
            return path
        }

        private func plain(_ name: [UInt8], in directory: [UInt8]) -> String {
            guard let id = now.directories[directory]?.id ?? before.directories[directory]?.id
            else { return "?" }
            let sealed =
                name.first == NameCipher.longNamePrefix ? walk.longName(name, in: directory) : name
            return sealed?.withUnsafeBytes { walk.keys.names.decrypt($0, in: id) }
                .map { String(decoding: $0, as: UTF8.self) } ?? "?"
        }
    }
}
