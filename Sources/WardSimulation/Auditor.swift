import CWardLinux
import Crypto
import Glibc
import WardContainers
import WardControl
import WardFormat
import WardSystem

/// Audits a mounted volume and changes nothing. It opens only files whose class can be opened in
/// this state, so it adds no denial.
///
/// Use it only in a process that does not use the volume otherwise. Closing a database's file drops
/// all POSIX locks of this process on the file (fcntl(2)).
public struct Auditor {
    /// Shorter files are not compared: "{}" and "1" are everywhere.
    public static let smallestCopyBytes = 8
    /// https://www.sqlite.org/fileformat.html, section 1.3.
    private static let databaseHeader = Array("SQLite format 3\0".utf8)
    /// Files of one size are compared by this many first bytes before they are read whole.
    private static let beginningBytes = 1 << 16

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

    /// - Parameters:
    ///   - events: All events that the volume's daemon still has.
    ///   - kinds: The findings to look for. Contents are read only for `readableCopy` and
    ///     `sideFileClass`.
    public func audit(
        _ events: [ControlEvent], kinds: Set<Finding.Kind> = Set(Finding.Kind.allCases),
        progress: FileSurvey.Progress = { _, _, _ in }
    ) -> Audit {
        var audit = Audit(state: status.state)
        let survey = FileSurvey(top: mountPoint, progress: progress)
        let entries = survey.entries
        audit.files = survey.files
        audit.marked = survey.directories.filter(\.isMarked).map(\.path)
        audit.unread = entries.filter { !isReadable($0) && $0.file.sizeBytes > 0 }.map(\.file.path)
        audit.unreachable = survey.unreachable.map {
            "\($0.path): \(String(cString: strerror($0.reason.rawValue)))"
        }
        if kinds.contains(.protectedSynced) { audit.findings += synced(survey) }
        if kinds.contains(.sideFileClass) { audit.findings += sideFiles(entries) }
        if kinds.contains(.readableCopy) { audit.findings += copies(entries, progress) }
        let ofContainers: Set<Finding.Kind> = [
            .backgroundClassA, .containerClass, .protectedTemporary,
        ]
        if !kinds.isDisjoint(with: ofContainers) {
            audit.findings += containers(survey).filter { kinds.contains($0.kind) }
        }
        let byPath = Dictionary(entries.map { ($0.file.path, $0.file) }) { first, _ in first }
        for event in events where event.pid != Int(getpid()) {
            guard let fileEvent = FileEvent(event) else { continue }
            switch ControlEvent.Kind(rawValue: event.kind) {
            case .denied: audit.denials.append(fileEvent)
            case .removedUnread where kinds.contains(.removedUnread):
                audit.findings.append(.removedUnread(fileEvent))
            case .weakened where kinds.contains(.weakened):
                // Skip a file that was mended or removed since.
                guard let file = fileEvent.path.flatMap({ byPath[$0] }), file.sizeBytes > 0,
                    fileEvent.protectionClass?.isStronger(than: file.protectionClass) == true
                else { continue }
                audit.findings.removeAll { $0.kind == .weakened && $0.path == file.path }
                audit.findings.append(.weakened(fileEvent, now: file))
            default: break
            }
        }
        return audit
    }

    private func isReadable(_ entry: FileSurvey.Entry) -> Bool {
        available.contains(entry.file.protectionClass)
    }

    // MARK: Synchronised directories

    private func synced(_ survey: FileSurvey) -> [Finding] {
        let synchronisers = survey.synchronisers()
        let around = SyncTool.around(mountPoint).map {
            FileSurvey.Synchroniser(directory: $0.directory, tool: $0.tool.rawValue)
        }
        return survey.entries.compactMap { entry in
            guard !entry.file.protectionClass.isForSynchronised,
                let by = synchronisers[entry.directory] ?? around
            else { return nil }
            return .protectedSynced(entry.file, directory: by.directory, tool: by.tool)
        }
    }

    // MARK: Containers and temporary files

    private func containers(_ survey: FileSurvey) -> [Finding] {
        var findings: [Finding] = []
        let containers = AuditedContainers(survey)
        let background = containers.background
        // For each directory: the app that runs in the background with its files, and the temporary
        // directory around it.
        var within: [AuditedContainers.Background?] = []
        var temporary: [String?] = []
        for (index, directory) in survey.directories.enumerated() {
            within.append(background[index] ?? directory.parent.flatMap { within[$0] })
            let isTemporary =
                directory.path == "/" + ContainerLayout.temporary
                || directory.parent.map { containers.roots[$0] != nil } == true
                    && directory.path.hasSuffix("/" + ContainerLayout.temporary)
            temporary.append(
                isTemporary ? directory.path : directory.parent.flatMap { temporary[$0] })
            if let container = containers.roots[index],
                let wanted = container.record.entitlement.flatMap({
                    ProtectionClass(spelling: $0)
                }), let has = directory.protectionClass, wanted != has
            {
                findings.append(
                    .containerClass(
                        container: container.record.id.text, path: directory.path,
                        protectionClass: has, entitlement: wanted))
            }
        }
        for entry in survey.entries {
            if let directory = temporary[entry.directory],
                !entry.file.protectionClass.isForSynchronised
            {
                findings.append(.protectedTemporary(entry.file, directory: directory))
            } else if entry.file.protectionClass == .complete, let app = within[entry.directory] {
                findings.append(
                    .backgroundClassA(entry.file, container: app.app, modes: app.modes))
            }
        }
        return findings
    }

    // MARK: Databases

    private func sideFiles(_ entries: [FileSurvey.Entry]) -> [Finding] {
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

    /// A file that can't be read now, or is empty, counts as a database because it has side files.
    private func isDatabase(_ entry: FileSurvey.Entry) -> Bool {
        guard isReadable(entry), entry.file.sizeBytes > 0 else { return true }
        var header = [UInt8](repeating: 0, count: Auditor.databaseHeader.count)
        guard let file = Auditor.open(entry.rawPath), let count = Auditor.read(file, &header)
        else { return true }
        return count == header.count && header == Auditor.databaseHeader
    }

    // MARK: Copies

    /// Compares files of one size, some protected and some not: first their beginnings, then the
    /// whole files where those agree.
    private func copies(
        _ entries: [FileSurvey.Entry], _ progress: FileSurvey.Progress
    ) -> [Finding] {
        let candidates = entries.filter {
            isReadable($0) && $0.file.sizeBytes >= Auditor.smallestCopyBytes
        }
        let ofOneSize = Auditor.mixed(Dictionary(grouping: candidates, by: \.file.sizeBytes).values)
        let alike = Auditor.mixed(
            Auditor.groups(ofOneSize, by: Auditor.beginningBytes, "beginnings", progress))
        let same = Auditor.mixed(Auditor.groups(alike, by: .max, "contents", progress))
        var findings: [Finding] = []
        for group in same {
            guard let original = group.first(where: Auditor.isProtected) else { continue }
            for entry in group where !Auditor.isProtected(entry) {
                findings.append(.readableCopy(protected: original.file, copy: entry.file))
            }
        }
        return findings.sorted { $0.description < $1.description }
    }

    /// The groups that have both protected and unprotected files.
    private static func mixed(
        _ groups: some Sequence<[FileSurvey.Entry]>
    ) -> [[FileSurvey.Entry]] {
        groups.filter { group in
            group.contains(where: isProtected) && group.contains { !isProtected($0) }
        }
    }

    /// Splits the groups by the digest of the first `bytes` bytes of each file. Leaves out files
    /// that can't be read, or whose size has changed.
    private static func groups(
        _ groups: [[FileSurvey.Entry]], by bytes: Int, _ what: String,
        _ progress: FileSurvey.Progress
    ) -> [[FileSurvey.Entry]] {
        let all = groups.enumerated().flatMap { number, group in group.map { (number, $0) } }
        // Files of at most `beginningBytes` were read whole in the first pass.
        let isDone = bytes == .max ? beginningBytes : 0
        let digests = Parallel.map(
            all.count, threads: Parallel.threadCount, share: FileSurvey.smallestShare,
            name: "ward-audit", tick: { progress(what, $0, all.count) },
            { index -> [UInt8]? in
                let entry = all[index].1
                return entry.file.sizeBytes <= isDone ? [] : digest(entry, first: bytes)
            })
        var result: [[FileSurvey.Entry]] = []
        var places: [GroupKey: Int] = [:]
        for ((number, entry), digest) in zip(all, digests) {
            guard let digest else { continue }
            let key = GroupKey(number: number, digest: digest)
            if let place = places[key] {
                result[place].append(entry)
            } else {
                places[key] = result.count
                result.append([entry])
            }
        }
        return result
    }

    private struct GroupKey: Hashable {
        var number: Int
        var digest: [UInt8]
    }

    /// Whether a lock makes the file unreadable.
    private static func isProtected(_ entry: FileSurvey.Entry) -> Bool {
        entry.file.protectionClass == .complete
            || entry.file.protectionClass == .completeUnlessOpen
    }

    /// Returns nil where the file can't be read, or its size has changed.
    private static func digest(_ entry: FileSurvey.Entry, first limit: Int) -> [UInt8]? {
        guard let file = open(entry.rawPath) else { return nil }
        var hash = SHA256()
        let wanted = min(limit, entry.file.sizeBytes)
        var total = 0
        var chunk = [UInt8](repeating: 0, count: min(1 << 18, wanted + 1))
        defer { chunk.withUnsafeMutableBytes { explicit_bzero($0.baseAddress!, $0.count) } }
        while total < wanted || wanted == entry.file.sizeBytes {
            guard let count = read(file, &chunk) else { return nil }
            if count == 0 { break }
            let taken = limit == .max ? count : min(count, wanted - total)
            chunk[..<taken].withUnsafeBytes { hash.update(bufferPointer: $0) }
            total += count
            if total > entry.file.sizeBytes { return nil }
        }
        return total >= wanted ? Array(hash.finalize()) : nil
    }

    private static func open(_ path: [CChar]) -> OwnedDescriptor? {
        let descriptor = try? LongPath.reach(path) { path throws(Errno) in
            try Syscall.openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        }
        return descriptor.map { OwnedDescriptor(adopting: $0) }
    }

    private static func read(
        _ file: borrowing OwnedDescriptor, _ buffer: inout [UInt8]
    ) -> Int? {
        let descriptor = file.rawValue
        return buffer.withUnsafeMutableBytes {
            try? Syscall.read(descriptor, $0.baseAddress!, $0.count)
        }
    }
}
