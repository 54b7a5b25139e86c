import Glibc
import WardFormat
import WardSystem
import WardVolume

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
        let root = try RootRepair(backingPath: backingPath, volumeKey: volumeKey, storage)
        var findings: [CheckFinding] = []
        if let problem = try root.recordProblem() {
            var finding = CheckFinding(
                .root, path: "/", protectionClass: .completeUntilFirstUserAuthentication,
                problem: problem, remedy: "made again; class C for new files")
            if repairs {
                try root.remakeRecord(.completeUntilFirstUserAuthentication)
                finding.outcome = .repaired
            }
            findings.append(finding)
        }
        if let problem = try root.stateProblem() {
            var finding = CheckFinding(
                .root, path: "/" + VolumeStateRecord.fileName, problem: problem,
                remedy: "made again; it excuses nothing that an unclean end may have left")
            if repairs {
                try root.remakeState()
                finding.outcome = .repaired
            }
            findings.append(finding)
        }
        return findings
    }
}

extension VolumeCheck {
    /// Checks the state record of the open volume, as it is on disk.
    func checkState() {
        let problem: String?
        do throws(VolumeOpenError) {
            problem = try volume.stateProblem()
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
