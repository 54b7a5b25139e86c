import WardFormat
import WardSystem
import WardVolume

// Classes without their seal (format 2, docs/format.md §6.2). The volume judges them; the check
// reports them.
extension VolumeCheck {
    /// Reports a directory whose record has no right seal.
    func checkSeal(
        _ record: DirectoryRecord, _ node: Node, _ descriptor: Int32
    ) throws(Errno) {
        let parentID = try volume.backing.parentID(of: node)
        // Between the formats classes without seals count as they are.
        let seals = volume.seals
        let isRight = try seals.whileOpen {
            seals.isRight(record, parentID: parentID)
                || seals.isGiven(record, inode: node.inode, in: parentID)
        }
        guard isRight == false, !volume.standing.isUpgrading
        else { return }
        let counts = try volume.backing.directoryState(of: node).protectionClass
        guard tally.withLock({ $0.told.unsealed.insert(node.inode).inserted }) else { return }
        add(
            CheckFinding(
                .seal, path: volume.path(of: node), protectionClass: counts,
                problem: "nothing vouches for the directory's class "
                    + "\(record.protectionClass.letter): \(counts.letter) counts",
                remedy: "left as it is",
                outcome: .left("to set the class: ward class set CLASS DIRECTORY")))
    }

    /// Reports a file that can be read and not changed, because nothing vouches for its class.
    func checkSeal(_ file: OpenFile, _ path: String) {
        guard volume.seals.areOpen, volume.isClassRefused(of: file) else { return }
        let letter = file.protectionClass.letter
        add(
            CheckFinding(
                .seal, path: path, protectionClass: file.protectionClass,
                problem: "nothing vouches for its class \(letter)",
                remedy: "left as it is: it can be read, and not changed",
                outcome: .left(
                    "to accept content and class: ward class set --rekey \(letter) FILE")))
    }
}
