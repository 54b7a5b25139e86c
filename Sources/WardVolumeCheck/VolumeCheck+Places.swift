import Glibc
import WardFormat
import WardSystem
import WardVolume

/// A file, directory or link in a directory where it does not belong.
struct Misplaced: Sendable {
    let parent: Node
    /// Zero-terminated.
    let stored: [CChar]
    /// Whether the name opens. A name that does not open is told of, and resolved, as a name.
    let hasName: Bool
    let inode: UInt64
    let type: mode_t
    let linkCount: UInt64
    /// The ID of the directory where it belongs.
    let homeID: [UInt8]
}

// Files, directories and links that a person without the keys moved to another directory (format
// 2). They are resolved when every directory is known.
extension VolumeCheck {
    // MARK: Finding

    /// Whether a file's name is in a directory where the file does not belong. Notes it then.
    func isMisplaced(_ task: FileTask, _ status: FileStatus, _ descriptor: Int32) -> Bool {
        guard volume.bindsPlaces, let state = task.parent.directory else { return false }
        // A file that does not open now is told of later.
        guard let home = try? volume.home(ofFile: task.stored, in: descriptor, state.id) else {
            if status.st_nlink > 1, task.hasName {
                tally.withLock { _ = $0.links.placed.insert(task.inode) }
            }
            return false
        }
        note(
            Misplaced(
                parent: task.parent, stored: task.stored, hasName: task.hasName,
                inode: task.inode, type: S_IFREG, linkCount: UInt64(status.st_nlink),
                homeID: home))
        return true
    }

    /// Whether a directory without a sound record is one that belongs elsewhere. Notes it then.
    func isMisplaced(_ bad: BadRecord, _ descriptor: Int32) throws(Errno) -> Bool {
        guard volume.bindsPlaces, let link = bad.node.link else { return false }
        let known = tally.withLock { Array($0.directories.keys) }
        let parentID = try volume.backing.parentID(of: bad.node)
        for id in known where id != parentID {
            guard case .sound = try recordOnDisk(descriptor, parentID: id) else { continue }
            let hasName = !tally.withLock { tally in
                tally.badNames.contains { $0.inode == bad.node.inode && $0.type == S_IFDIR }
            }
            note(
                Misplaced(
                    parent: link.parent, stored: link.name, hasName: hasName,
                    inode: bad.node.inode, type: S_IFDIR, linkCount: 1, homeID: id))
            return true
        }
        return false
    }

    /// Whether a link that does not authenticate belongs elsewhere. Notes it then.
    func isMisplacedLink(
        _ stored: [CChar], _ status: FileStatus, _ parent: Node, _ descriptor: Int32
    ) throws(Errno) -> Bool {
        guard volume.bindsPlaces else { return false }
        tally.withLock {
            $0.badLinks.append(
                BadLink(
                    parent: parent, stored: stored, inode: UInt64(status.st_ino),
                    linkCount: UInt64(status.st_nlink)))
        }
        return true
    }

    /// The ID of the directory that a link was made in, by the stored target; nil for a damaged
    /// one.
    func origin(ofLink target: [UInt8]) -> [UInt8]? {
        guard volume.bindsPlaces else { return nil }
        let known = tally.withLock { Array($0.directories.keys) }
        return known.first {
            volume.isTarget(target, ofOrigin: $0) { file in
                tally.withLock { _ = $0.longNames.targets.insert(file) }
            }
        }
    }

    private func note(_ misplaced: Misplaced) {
        tally.withLock { $0.misplaced.append(misplaced) }
    }

    // MARK: Resolving

    func resolvePlaces() {
        resolveLinks()
        var waiting = tally.withLock { tally in
            defer { tally.misplaced = [] }
            return tally.misplaced
        }
        while let next = waiting.popLast() {
            if shouldStop() { return }
            if !next.hasName {
                noteContent(of: next)
                continue
            }
            let partner = partner(of: next, among: &waiting)
            do throws(Errno) {
                try resolve(next, partner)
            } catch {
                if !isGone(error, next.inode, next.parent, next.stored) {
                    note(unreachable: volume.path(of: next.stored, in: next.parent), error)
                }
            }
        }
    }

    /// Takes the one that was exchanged with `misplaced` out of the list. Nil where several could
    /// be.
    private func partner(
        of misplaced: Misplaced, among waiting: inout [Misplaced]
    ) -> Misplaced? {
        func crosses(_ one: Misplaced, _ other: Misplaced) -> Bool {
            one.hasName && other.hasName && one.parent.directory?.id == other.homeID
                && other.parent.directory?.id == one.homeID
        }
        let partners = waiting.indices.filter { crosses(waiting[$0], misplaced) }
        guard partners.count == 1, !waiting.contains(where: { crosses($0, waiting[partners[0]]) })
        else { return nil }
        return waiting.remove(at: partners[0])
    }

    static let lostHome = "the directory where it belongs is not in the volume"

    private func resolve(_ misplaced: Misplaced, _ partner: Misplaced?) throws(Errno) {
        let directory = try volume.backing.directoryDescriptor(of: misplaced.parent)
        let status = try volume.storage.fstatat(directory.rawValue, misplaced.stored)
        guard UInt64(status.st_ino) == misplaced.inode else { return }
        // Programs may have moved it meanwhile.
        if misplaced.type == S_IFREG, let state = misplaced.parent.directory {
            let now = try volume.home(ofFile: misplaced.stored, in: directory.rawValue, state.id)
            if now == nil { return }
        }
        let (home, isPlaced) = tally.withLock { tally in
            (tally.directories[misplaced.homeID], tally.links.placed.contains(misplaced.inode))
        }
        let path = volume.path(of: misplaced.stored, in: misplaced.parent)
        var finding = CheckFinding(
            .place, path: path, problem: "it belongs in another directory", remedy: "")
        if let home { finding.problem = "it belongs in \(volume.path(of: home))" }
        if let partner {
            let other = volume.path(of: partner.stored, in: partner.parent)
            finding.problem += ": exchanged with \(other)"
            finding.remedy = "both are put back"
            noteContent(of: misplaced)
            noteContent(of: partner)
            let otherDirectory = try volume.backing.directoryDescriptor(of: partner.parent)
            add(finding) { () throws(Errno) in
                let now = try volume.storage.fstatat(otherDirectory.rawValue, partner.stored)
                guard UInt64(now.st_ino) == partner.inode else { throw .staleNFSFileHandle }
                try nameRepair.exchange(
                    (misplaced.inode, misplaced.parent, misplaced.stored),
                    (partner.inode, partner.parent, partner.stored))
                examineAgain(misplaced, in: partner.parent, partner.stored)
                examineAgain(partner, in: misplaced.parent, misplaced.stored)
                return nil
            }
        } else if misplaced.linkCount > 1, isPlaced {
            finding.problem += ", where it has another name"
            finding.remedy = "this name is moved to the quarantine"
            add(finding) { () throws(Errno) in
                let note = ["name of a file: \(backingPath(misplaced.parent, misplaced.stored))"]
                let kept = try quarantine.move(directory.rawValue, misplaced.stored, note)
                nameRepair.forget(misplaced.parent, misplaced.stored, status)()
                return kept
            }
        } else if let home {
            let name = "recovered-\(misplaced.inode)"
            finding.remedy = "moved back to \(volume.path(of: home)), called \(name)"
            noteContent(of: misplaced)
            add(finding) { () throws(Errno) in
                let stored = try nameRepair.storedName(name, in: home)
                try contexts.withTyped { context throws(Errno) in
                    try nameRepair.move(
                        inode: misplaced.inode, type: misplaced.type, from: misplaced.parent,
                        misplaced.stored, to: home, stored, context)
                }
                nameRepair.removeLongLink(misplaced.parent, misplaced.stored)
                examineAgain(misplaced, in: home, stored)
                return nil
            }
        } else {
            finding.remedy = "left where it is"
            finding.outcome = .left(VolumeCheck.lostHome)
            add(finding)
        }
    }

    /// Without a repair the content of a directory is not examined.
    private func noteContent(of misplaced: Misplaced) {
        guard !isRepairing, misplaced.type == S_IFDIR else { return }
        let path =
            misplaced.hasName
            ? volume.path(of: misplaced.stored, in: misplaced.parent)
            : place(misplaced.parent, misplaced.stored.dropLast().map(UInt8.init(bitPattern:)))
        tally.withLock {
            $0.report.unreachable.append("\(path): what is in it, before it is put back")
        }
    }

    /// Has a directory or file examined that was put back, as a name of `parent`.
    func examineAgain(_ misplaced: Misplaced, in parent: Node, _ stored: [CChar]) {
        tally.withLock { tally in
            switch misplaced.type {
            case S_IFDIR:
                let node = tally.retained.first { $0.inode == misplaced.inode && $0.isDirectory }
                if let node { tally.opened.append(node) }
            case S_IFREG:
                guard
                    misplaced.linkCount == 1
                        || tally.links.examined.insert(misplaced.inode).inserted
                else { return }
                tally.openedFiles.append(
                    FileTask(
                        inode: misplaced.inode, parent: parent, stored: stored, hasName: true,
                        seen: nil))
            default: break
            }
        }
    }

    /// Returns what was noted of a file or directory under a bad name in a directory where it does
    /// not belong.
    func misplaced(_ bad: BadName) -> Misplaced? {
        tally.withLock { tally in
            tally.misplaced.first {
                !$0.hasName && $0.inode == bad.inode && $0.parent === bad.parent
                    && $0.stored == bad.stored
            }
        }
    }

    // MARK: Links

    private func resolveLinks() {
        let bad = tally.withLock { tally in
            defer { tally.badLinks = [] }
            return tally.badLinks
        }
        for link in bad {
            if shouldStop() { return }
            do throws(Errno) {
                try resolve(link)
            } catch {
                if !isGone(error, link.inode, link.parent, link.stored) {
                    note(unreachable: volume.path(of: link.stored, in: link.parent), error)
                }
            }
        }
    }

    private func resolve(_ link: BadLink) throws(Errno) {
        let directory = try volume.backing.directoryDescriptor(of: link.parent)
        let target = try volume.storedLink(directory.rawValue, link.stored)
        let directoryID = try volume.backing.directoryState(of: link.parent).id
        guard let origin = origin(ofLink: target), origin != directoryID else {
            let status = try volume.storage.fstatat(directory.rawValue, link.stored)
            return addDamagedLink(link.stored, status, link.parent, directory.rawValue)
        }
        note(
            Misplaced(
                parent: link.parent, stored: link.stored, hasName: true, inode: link.inode,
                type: S_IFLNK, linkCount: link.linkCount, homeID: origin))
    }
}

/// A symbolic link whose target does not authenticate in its directory.
struct BadLink: Sendable {
    let parent: Node
    /// Zero-terminated.
    let stored: [CChar]
    let inode: UInt64
    let linkCount: UInt64
}
