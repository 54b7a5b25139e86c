import CWardLinux
import Crypto
import Glibc
import WardControl
import WardFormat
import WardSystem

/// Takes an audit of a mounted volume. It opens only files whose class can be opened in this state, so it adds no denial.
///
/// For a process that uses the volume for nothing else: closing a database's file drops every POSIX lock that this process
/// has on it (fcntl(2)).
public struct Auditor {
    /// Shorter files than this are no copies of each other: "{}" and "1" are everywhere.
    public static let smallestCopyBytes = 8
    /// https://www.sqlite.org/fileformat.html, section 1.3.
    private static let databaseHeader = Array("SQLite format 3\0".utf8)

    private struct Entry {
        var file: Audit.File
        /// As the kernel gave it: names need not be UTF-8.
        var path: [CChar]
        var isReadable: Bool
        var inode: UInt64
    }

    private let mountPoint: String
    private let status: VolumeStatus
    private let available: Set<ProtectionClass>

    public init(_ status: VolumeStatus) {
        mountPoint = status.mountpoint
        self.status = status
        available = Set(
            status.classes.filter(\.available).compactMap {
                ProtectionClass(spelling: $0.letter)
            })
    }

    /// `events`: all that the volume's daemon has to tell.
    public func audit(_ events: [ControlEvent]) -> Audit {
        var audit = Audit(state: status.state)
        let entries = list().sorted { $0.file.path < $1.file.path }
        audit.files = entries.map(\.file)
        audit.unread = entries.filter { !$0.isReadable && $0.file.sizeBytes > 0 }.map(\.file.path)
        audit.findings = sideFiles(entries) + copies(entries)
        for event in events where event.pid != Int(getpid()) {
            guard let fileEvent = FileEvent(event) else { continue }
            switch ControlEvent.Kind(rawValue: event.kind) {
            case .denied: audit.denials.append(fileEvent)
            case .removedUnread: audit.findings.append(.removedUnread(fileEvent))
            default: break
            }
        }
        return audit
    }

    // MARK: Which files there are

    private func list() -> [Entry] {
        var entries: [Entry] = []
        var directories = [[CChar](mountPoint.utf8CString.dropLast())]
        while let directory = directories.popLast() {
            guard let stream = opendir(directory + [0]) else { continue }
            defer { closedir(stream) }
            while let item = readdir(stream) {
                let name = withUnsafeBytes(of: &item.pointee.d_name) {
                    $0.prefix { $0 != 0 }.map { CChar(bitPattern: $0) }
                }
                if name == [46] || name == [46, 46] { continue }
                let path = directory + [47] + name
                var status = FileStatus()
                guard lstat(path + [0], &status) == 0 else { continue }
                if status.st_mode & S_IFMT == S_IFDIR {
                    directories.append(path)
                } else if status.st_mode & S_IFMT == S_IFREG,
                    let entry = entry(path + [0], status)
                {
                    entries.append(entry)
                }
            }
        }
        return entries
    }

    /// Nil where it is gone already.
    private func entry(_ path: [CChar], _ status: FileStatus) -> Entry? {
        var value = [UInt8](repeating: 0, count: 128)
        let count = ward_getxattr(path, "user.ward.class", &value, value.count)
        guard count > 0,
            let protectionClass = ProtectionClass(
                spelling: String(decoding: value[..<count], as: UTF8.self))
        else { return nil }
        let name = String(
            decoding: path.dropFirst(mountPoint.utf8.count).dropLast().map {
                UInt8(bitPattern: $0)
            }, as: UTF8.self)
        return Entry(
            file: Audit.File(
                path: name, protectionClass: protectionClass, sizeBytes: Int(status.st_size)),
            path: path, isReadable: available.contains(protectionClass),
            inode: UInt64(status.st_ino))
    }

    // MARK: Databases

    private func sideFiles(_ entries: [Entry]) -> [Finding] {
        let byPath = Dictionary(entries.map { ($0.file.path, $0) }) { first, _ in first }
        var findings: [Finding] = []
        for entry in entries {
            let sides = ["-wal", "-journal", "-shm"].compactMap { suffix in
                byPath[entry.file.path + suffix].map { (suffix, $0.file) }
            }
            guard !sides.isEmpty, isDatabase(entry) else { continue }
            for (suffix, side) in sides {
                let expected = Auditor.expectedClass(of: suffix, entry.file.protectionClass)
                if side.protectionClass != expected {
                    findings.append(
                        .sideFileClass(database: entry.file, sideFile: side, expected: expected))
                }
            }
        }
        return findings
    }

    /// Row I12: `-shm` holds no user data and is mapped by every reader.
    private static func expectedClass(
        of suffix: String, _ database: ProtectionClass
    ) -> ProtectionClass {
        guard suffix == "-shm" else { return database }
        return database == .none ? .none : .completeUntilFirstUserAuthentication
    }

    /// What can't be read now, or holds nothing yet, is one by the side files it has.
    private func isDatabase(_ entry: Entry) -> Bool {
        guard entry.isReadable, entry.file.sizeBytes > 0 else { return true }
        var header = [UInt8](repeating: 0, count: Auditor.databaseHeader.count)
        guard let file = open(entry.path), let count = read(file, &header) else { return true }
        return count == header.count && header == Auditor.databaseHeader
    }

    // MARK: Copies

    private func copies(_ entries: [Entry]) -> [Finding] {
        let candidates = entries.filter {
            $0.isReadable && $0.file.sizeBytes >= Auditor.smallestCopyBytes
        }
        var findings: [Finding] = []
        for group in Dictionary(grouping: candidates, by: \.file.sizeBytes).values {
            let protected = group.filter { Auditor.isProtected($0.file) }
            let others = group.filter { !Auditor.isProtected($0.file) }
            guard !protected.isEmpty, !others.isEmpty else { continue }
            var originals: [SHA256.Digest: Audit.File] = [:]
            for entry in protected {
                if let digest = digest(entry), originals[digest] == nil {
                    originals[digest] = entry.file
                }
            }
            for entry in others {
                if let digest = digest(entry), let original = originals[digest] {
                    findings.append(.readableCopy(protected: original, copy: entry.file))
                }
            }
        }
        return findings.sorted { $0.description < $1.description }
    }

    /// Whether a lock takes it away.
    private static func isProtected(_ file: Audit.File) -> Bool {
        file.protectionClass == .complete || file.protectionClass == .completeUnlessOpen
    }

    /// Nil where it can't be read after all, or changed its size meanwhile.
    private func digest(_ entry: Entry) -> SHA256.Digest? {
        guard let file = open(entry.path) else { return nil }
        var hash = SHA256()
        var total = 0
        var chunk = [UInt8](repeating: 0, count: 1 << 18)
        while true {
            guard let count = read(file, &chunk) else { return nil }
            if count == 0 { break }
            chunk[..<count].withUnsafeBytes { hash.update(bufferPointer: $0) }
            total += count
        }
        return total == entry.file.sizeBytes ? hash.finalize() : nil
    }

    private func open(_ path: [CChar]) -> OwnedDescriptor? {
        let descriptor = path.withUnsafeBufferPointer {
            try? Syscall.openat(AT_FDCWD, $0.baseAddress!, O_RDONLY | O_NOFOLLOW)
        }
        return descriptor.map { OwnedDescriptor(adopting: $0) }
    }

    private func read(_ file: borrowing OwnedDescriptor, _ buffer: inout [UInt8]) -> Int? {
        let descriptor = file.rawValue
        return buffer.withUnsafeMutableBytes {
            try? Syscall.read(descriptor, $0.baseAddress!, $0.count)
        }
    }
}
