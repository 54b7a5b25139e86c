import Glibc
import WardFormat
import WardSystem

// Checks the root's own files of a volume that is not mounted. Without them it does not open, and
// nothing else can be examined.
extension Volume {
    /// Finds faults of the root's directory record and of the state record. With `repairs` it makes
    /// them again.
    ///
    /// The record's ID follows from the volume key; its class is lost and becomes C. A new state
    /// record excuses nothing: remains of a power cut are then found as damage.
    ///
    /// The caller holds the volume's lock. Throws `VolumeOpenError` where the root can't be read,
    /// or belongs to a later version.
    public static func checkRoot(
        backingPath: String, volumeKey: borrowing SecretBytes, repairs: Bool,
        storage: any Storage = PosixStorage()
    ) throws(VolumeOpenError) -> [CheckFinding] {
        let keys = try VolumeRoot.derive(volumeKey, backingPath)
        let descriptor = try VolumeRoot.call(backingPath, "can't be opened") { () throws(Errno) in
            try storage.openat(AT_FDCWD, backingPath, O_RDONLY | O_DIRECTORY, mode: 0)
        }
        defer { storage.close(descriptor) }
        var findings: [CheckFinding] = []
        if let problem = try VolumeRoot.recordProblem(descriptor, backingPath, keys, storage) {
            var finding = CheckFinding(
                .root, path: "/", protectionClass: .completeUntilFirstUserAuthentication,
                problem: problem, remedy: "made again; class C for new files")
            if repairs {
                try VolumeRoot.call(backingPath, "the root's record can't be written") {
                    () throws(Errno) in
                    try VolumeRoot.remakeRecord(descriptor, keys, storage)
                }
                finding.outcome = .repaired
            }
            findings.append(finding)
        }
        if let problem = try VolumeRoot.stateProblem(descriptor, backingPath, keys, storage) {
            var finding = CheckFinding(
                .root, path: "/" + VolumeStateRecord.fileName, problem: problem,
                remedy: "made again; it excuses nothing that an unclean end may have left")
            if repairs {
                try VolumeRoot.call(backingPath, "the state record can't be written") {
                    () throws(Errno) in
                    try VolumeRoot.writeState(
                        VolumeStateRecord(
                            isInUse: false, epoch: VolumeStateRecord.unknownEpoch, doubtful: []),
                        descriptor, keys, storage)
                }
                finding.outcome = .repaired
            }
            findings.append(finding)
        }
        return findings
    }
}

extension VolumeRoot {
    fileprivate static func recordProblem(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(VolumeOpenError) -> String? {
        do throws(VolumeOpenError) {
            let record = try readRecord(descriptor, path, keys, storage)
            return record.directoryID == keys.rootID
                ? nil : "the root's directory record is another directory's"
        } catch {
            switch error.code {
            case .damaged, .system(.invalidArgument):
                return "the root's directory record is missing or damaged"
            default: throw error
            }
        }
    }

    /// Nil where the state record is sound. Also used on a mounted volume.
    static func stateProblem(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(VolumeOpenError) -> String? {
        do throws(VolumeOpenError) {
            _ = try readState(descriptor, path, keys, storage)
            return nil
        } catch {
            switch error.code {
            case .system(.noSuchFileOrDirectory): return "the state record is missing"
            case .damaged, .system(.tooManySymbolicLinkLevels):
                return "the state record is damaged"
            default: throw error
            }
        }
    }

    fileprivate static func remakeRecord(
        _ descriptor: Int32, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(Errno) {
        let staging = stagingPrefix + "record"
        let record = DirectoryRecord(
            directoryID: keys.rootID, protectionClass: .completeUntilFirstUserAuthentication)
        try? storage.unlinkat(descriptor, staging, 0)
        try storage.symlinkat(target: record.linkTarget(macKey: keys.records), descriptor, staging)
        try storage.renameat(descriptor, staging, descriptor, DirectoryRecord.linkName, flags: 0)
        try storage.fsync(descriptor)
    }
}

extension VolumeCheck {
    /// Checks the state record of the open volume, as it is on disk.
    func checkState() {
        let problem: String?
        do throws(VolumeOpenError) {
            problem = try volume.durability.stateProblem()
        } catch {
            return tally.withLock { $0.report.unreachable.append("\(error)") }
        }
        guard let problem else { return }
        add(
            CheckFinding(
                .root, path: "/" + VolumeStateRecord.fileName, problem: problem,
                remedy: "written again as it was")
        ) { () throws(Errno) in
            try volume.durablePoint()
            return nil
        }
    }
}
