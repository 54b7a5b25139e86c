import Glibc
import WardFormat
import WardSystem
import WardVolume

// Examines files: the header, the attributes, every page.
extension VolumeCheck {
    func check(_ task: FileTask) {
        contexts.with { context in
            do throws(Errno) {
                let node = try volume.retainNode(
                    inode: task.inode, type: S_IFREG, task.stored, in: task.parent,
                    seen: task.seen)
                defer { volume.releaseNode(node) }
                check(task, node, context)
            } catch {
                if isGone(error, task.inode, task.parent, task.stored) { return }
                note(unreachable: path(of: task), error)
            }
        }
    }

    private func check(_ task: FileTask, _ node: Node, _ context: WorkerContext) {
        while true {
            do throws(Errno) {
                return try volume.withOpenFile(node, context, shouldStop: shouldStop) { file in
                    checkOpen(file, task, context)
                }
            } catch .ioError {
                if salvage(task, node, context) { return }
            } catch {
                if !isGone(error, task.inode, task.parent, task.stored) {
                    note(unreachable: path(of: task), error)
                }
                return
            }
        }
    }

    func path(of task: FileTask) -> String {
        if task.hasName {
            return volume.path(of: task.stored, in: task.parent)
        }
        return place(task.parent, task.stored.dropLast().map { UInt8(bitPattern: $0) })
    }

    private func checkOpen(_ file: OpenFile, _ task: FileTask, _ context: WorkerContext) {
        tally.withLock { tally in
            tally.report.progress.files += 1
            if let header = file.header { tally.hints.insert(header.directoryID) }
        }
        let path = path(of: task)
        // Also for a file that was open before: after a failed sync, pages in memory may not be on
        // the disk.
        if volume.isInDoubt { volume.storage.forgetCached(file.descriptor) }
        guard checkHeader(file, task, path, context) else { return }
        checkSeal(file, path)
        if pages.lacksFirstPage(file) {
            add(
                CheckFinding(
                    .unclean, path: path, protectionClass: file.protectionClass,
                    problem: "its first page never reached the disk: it is empty",
                    remedy: "cut to no bytes")
            ) { () throws(Errno) in
                try pageRepair.settleCut(of: file)
                return nil
            }
        }
        checkAttributes(
            of: file.node, file.descriptor, path: path, protectionClass: file.protectionClass
        ) {
            file.withReadLock { file.header?.fileID }
        }
        checkContent(file, task, path, context)
    }

    /// Compares the header on disk with the one in use, which changes only through the volume.
    /// False where a failed sync has brought back another first page: nothing can be said of the
    /// rest now.
    private func checkHeader(
        _ file: OpenFile, _ task: FileTask, _ path: String, _ context: WorkerContext
    ) -> Bool {
        switch pages.headerOnDisk(of: file, context) {
        case .own: return true
        case .anotherPage:
            add(
                CheckFinding(
                    .header, path: path, protectionClass: file.protectionClass,
                    problem: "its first page is not what was written while it is open",
                    remedy: "told when it is closed",
                    outcome: .left("close it, unlock, then check again")))
            return false
        case .changed:
            add(
                CheckFinding(
                    .header, path: path, protectionClass: file.protectionClass,
                    problem: "its header was changed while it is open",
                    remedy: "written again as it was")
            ) { () throws(Errno) in
                try pageRepair.restoreHeader(of: file, context) { () throws(Errno) in
                    try quarantine.keep(
                        pages: [0..<1], of: file.descriptor, pageNote(task, file, "header"))
                }
            }
            return true
        }
    }

    func pageNote(_ task: FileTask, _ file: OpenFile, _ what: String) -> [String] {
        [
            "\(what): \(backingPath(task.parent, task.stored))",
            "class \(file.protectionClass.letter)",
        ]
    }

    // MARK: Content

    /// Reads every page and adds the findings.
    private func checkContent(
        _ file: OpenFile, _ task: FileTask, _ path: String, _ context: WorkerContext
    ) {
        let found: [PageFault]
        do throws(Errno) {
            found = try faults(of: file, context)
        } catch .notPermitted {
            tally.withLock { $0.report.unread[file.protectionClass, default: 0] += 1 }
            return
        } catch .ioError where file.header != nil && !pages.keyOpens(file, context) {
            add(
                CheckFinding(
                    .header, path: path, protectionClass: file.protectionClass,
                    problem: "its key does not open with the volume's class keys",
                    remedy: "left as it is",
                    outcome: .left("it may open with another keybag of this volume")))
            return
        } catch .canceled {
            return
        } catch {
            note(unreachable: path, error)
            return
        }
        let excused = found.filter { $0.state == .excused }
        if !excused.isEmpty {
            add(
                finding(.unclean, excused, file, path, remedy: "written as it was accepted")
            ) { () throws(Errno) in
                try pageRepair.mend(file, context, shouldStop: shouldStop)
                return nil
            }
        }
        let bad = found.filter { $0.state != .excused }
        if !bad.isEmpty {
            add(
                finding(
                    .content, bad, file, path,
                    remedy: bad.contains { !$0.bytes.isEmpty }
                        ? "these bytes become zeros, everything else is kept"
                        : "what is there is kept")
            ) { () throws(Errno) in
                try repair(file, bad, task, context)
            }
        }
    }

    func finding(
        _ kind: CheckFinding.Kind, _ faults: [PageFault], _ file: OpenFile, _ path: String,
        remedy: String
    ) -> CheckFinding {
        var ranges: [Range<Int>] = []
        for bad in faults where !bad.bytes.isEmpty {
            if let last = ranges.last, last.upperBound == bad.bytes.lowerBound {
                ranges[ranges.count - 1] = last.lowerBound..<bad.bytes.upperBound
            } else {
                ranges.append(bad.bytes)
            }
        }
        var reasons: [String] = []
        for bad in faults where !reasons.contains(bad.reason) && reasons.count < 4 {
            reasons.append(bad.reason)
        }
        return CheckFinding(
            kind, path: path, protectionClass: file.protectionClass, bytes: ranges,
            problem: reasons.joined(separator: "; "), remedy: remedy)
    }

    /// Reads every page of a file and returns the faults. Throws as `PageExaminer.faults` does.
    func faults(of file: OpenFile, _ context: WorkerContext) throws(Errno) -> [PageFault] {
        try pages.faults(of: file, context) { bytes in
            tally.withLock { $0.report.progress.bytes += bytes }
        }
    }
}
