import Glibc
import WardFormat
import WardSystem
import WardVolume

// Repairs of a file's content, and its attributes.
extension VolumeCheck {
    // MARK: Repairing content

    /// Makes pages of an open file readable again, with their content or with zeros. Returns where
    /// the quarantine keeps the old pages.
    func repair(
        _ file: OpenFile, _ bad: [PageFault], _ task: FileTask, _ context: WorkerContext
    ) throws(Errno) -> String? {
        try PageRepair.refuseToFill(bad)
        let kept = try quarantine.keep(
            pages: [0..<1] + bad.map(\.pages), of: file.descriptor, pageNote(task, file, "pages"))
        try pageRepair.repair(bad, of: file, context)
        return kept
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
            for (name, value) in bad {
                isSound.append(try volume.isSoundAttribute(name, value, owner: owner))
            }
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
                try volume.syncAttributes(of: node, descriptor)
                return kept
            }
        } catch {
            if !isGone(error, node) { note(unreachable: path, error) }
        }
    }
}
