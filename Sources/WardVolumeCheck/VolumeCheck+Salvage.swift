import Glibc
import WardFormat
import WardSystem
import WardVolume

// Salvages files that don't open (`FileSalvage`).
extension VolumeCheck {
    /// Salvages a file while opens of it fail with `EIO`, as before. False where a program has it
    /// open after all.
    func salvage(_ task: FileTask, _ node: Node, _ context: WorkerContext) -> Bool {
        // Calls that may wait for the kernel, which may wait for one of our locks.
        var afterwards: [() -> Void] = []
        defer { for body in afterwards { body() } }
        return salvaging.whileItDoesNotOpen(node) {
            tally.withLock { $0.report.progress.files += 1 }
            salvage(task, node, context, &afterwards)
        }
    }

    private func salvage(
        _ task: FileTask, _ node: Node, _ context: WorkerContext, _ afterwards: inout [() -> Void]
    ) {
        let path = path(of: task)
        do throws(Errno) {
            switch try salvaging.open(node, in: task.parent, context) {
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
                defer { salvaging.close(file) }
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
        let bad = try faults(of: file, context)
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
            guard file.isWritable, file.header != nil else { throw .readOnlyFileSystem }
            try PageRepair.refuseToFill(bad)
            let kept = try quarantine.keep(
                pages: [0..<1] + bad.map(\.pages) + [tail], of: file.descriptor,
                pageNote(task, file, "pages"))
            try pageRepair.repair(bad, ofSalvaged: file, headerIsBad: headerIsBad, context)
            tally.withLock { _ = $0.untouched.remove(task.inode) }
            return kept
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
        return (kept, nameRepair.forget(task.parent, task.stored, status))
    }
}
