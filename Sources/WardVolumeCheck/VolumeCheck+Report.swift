import Glibc
import WardFormat
import WardSystem
import WardVolume

// The report that a repair leaves for the owner of the files.
extension VolumeCheck {
    private static let longestWrite = 1 << 20

    /// Writes the report into the volume's root as a file of class D. It holds names, which have no
    /// better protection. The quarantine can't hold it: names would lie in the backing directory in
    /// clear.
    func leaveReport() {
        let report = tally.withLock { $0.report }
        guard report.repaired > 0 else { return }
        let text = Array(CheckReportText.text(report, name: name).utf8)
        // A report of the same second may have that name.
        for attempt in 1...100 {
            let path = "ward check \(name)\(attempt == 1 ? "" : "-\(attempt)").txt"
            do throws(Errno) {
                try contexts.withTyped { context throws(Errno) in
                    try write(text, called: path, context)
                }
                return tally.withLock { $0.report.reportPath = "/" + path }
            } catch .fileExists {
                continue
            } catch {
                return note(unreachable: "the report could not be written: /\(path)", error)
            }
        }
    }

    private func write(
        _ text: [UInt8], called name: String, _ context: WorkerContext
    ) throws(Errno) {
        // The volume's owner may read it.
        let owner = try volume.storage.fstat(volume.store.root)
        let caller = Caller(uid: owner.st_uid, gid: owner.st_gid, pid: 0)
        let (entry, opened) = try volume.createUnnamed(
            1, mode: 0o600, umask: 0, flags: O_RDWR, caller: caller, context)
        defer {
            volume.release(opened.handle, context)
            volume.forget(entry.node, lookups: 1)
        }
        try volume.setProtectionClass(of: entry.node, to: .none, caller, context)
        try text.withUnsafeBytesTyped { bytes throws(Errno) in
            // No request may be longer than a context's page buffer.
            for start in stride(from: 0, to: bytes.count, by: VolumeCheck.longestWrite) {
                let end = min(start + VolumeCheck.longestWrite, bytes.count)
                try volume.write(
                    opened.handle, offsetBytes: UInt64(start),
                    UnsafeRawBufferPointer(rebasing: bytes[start..<end]), flags: [], caller: caller,
                    context)
            }
        }
        let plain = Array(name.utf8)
        let linked = try plain.withUnsafeBytesTyped { bytes throws(Errno) in
            try volume.link(entry.node, 1, bytes, caller: caller, context)
        }
        volume.forget(linked.node, lookups: 1)
        try volume.fsync(opened.handle, dataOnly: false, context)
        volume.kernel?.invalidateName(plain, in: 1)
    }
}

/// Findings in words.
public enum CheckReportText {
    /// The report that stays in the volume after a repair.
    static func text(_ report: CheckReport, name: String) -> String {
        var lines = [
            "ward check --repair, \(name)", "",
            "What could be read is where it was. What could not is in the backing directory, below",
            "\(Quarantine.directoryName): ciphertext, which nothing removes but you. Restore from a backup what you",
            "miss; delete this file, and the quarantine, when you need neither any more.", "",
        ]
        for finding in report.findings { lines += self.lines(of: finding) + [""] }
        let others = report.progress.findings - report.findings.count
        if others > 0 { lines += ["and \(others) more, which the command told", ""] }
        return lines.joined(separator: "\n")
    }

    /// The lines of one finding: the fault and its place, the bytes, the outcome.
    public static func lines(of finding: CheckFinding) -> [String] {
        let kind = finding.protectionClass.map { " (class \($0.letter))" } ?? ""
        var lines = ["\(finding.path)\(kind)", "  \(finding.problem)"]
        if !finding.bytes.isEmpty {
            lines.append("  bytes that can't be read: \(finding.byteText)")
        }
        switch finding.outcome {
        case .found: lines.append("  --repair: \(finding.remedy)")
        case .repaired: lines.append("  repaired: \(finding.remedy)")
        case .left(let why): lines.append("  not repaired: \(why)")
        }
        if let kept = finding.quarantined { lines.append("  kept: \(kept)") }
        return lines
    }
}
