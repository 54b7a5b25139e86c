import Glibc
import WardFormat
import WardSystem
import WardVolume

// Leftovers of interrupted operations, and symbolic links.
extension VolumeCheck {
    // MARK: Leftovers

    func checkLeftover(_ name: [UInt8], _ node: Node, _ descriptor: Int32) {
        let stored = name.zeroTerminated
        do throws(Errno) {
            _ = try volume.storage.fstatat(descriptor, stored)
        } catch {
            if !isGone(error, nil, node, stored) { note(unreachable: place(node, name), error) }
            return
        }
        add(
            CheckFinding(
                .leftover, path: place(node, name), problem: "an interrupted operation left it",
                remedy: "taken away")
        ) { () throws(Errno) in
            volume.sweep(descriptor, name)
            guard (try? volume.storage.fstatat(descriptor, stored)) != nil else { return nil }
            return try quarantine.move(
                descriptor, stored, ["unfinished: \(backingPath(node, stored))"])
        }
    }

    /// Notes the half of a long name without its other half. It is examined again after changed
    /// names were repaired.
    func noteIfOrphaned(_ name: [UInt8], _ node: Node, _ descriptor: Int32) {
        let half = LongNameHalf(parent: node, name: name)
        if (try? isOrphan(half, descriptor)) == false { return }
        tally.withLock { $0.longNames.halves.append(half) }
    }

    private func isOrphan(
        _ half: LongNameHalf, _ descriptor: Int32
    ) throws(Errno) -> Bool {
        func exists(_ name: [CChar]) throws(Errno) -> Bool {
            do throws(Errno) {
                _ = try volume.storage.fstatat(descriptor, name)
                return true
            } catch .noSuchFileOrDirectory {
                return false
            }
        }
        if try exists(half.stored) { return false }
        return try exists(half.link)
    }

    func check(_ half: LongNameHalf) {
        let directory: StoreDescriptor
        do throws(Errno) {
            directory = try volume.backing.directoryDescriptor(of: half.parent)
        } catch {
            if !isGone(error, half.parent) {
                note(unreachable: place(half.parent, half.name), error)
            }
            return
        }
        volume.names.withLongNamesFixed {
            do throws(Errno) {
                // Both halves are made and removed under the lock.
                guard try isOrphan(half, directory.rawValue) else { return }
            } catch {
                return note(unreachable: place(half.parent, half.name), error)
            }
            add(
                CheckFinding(
                    .leftover, path: place(half.parent, half.name),
                    problem: "half of a long name that is gone", remedy: "taken away")
            ) { () throws(Errno) in
                try volume.storage.unlinkat(directory.rawValue, half.link, 0)
                return nil
            }
        }
    }

    // MARK: Symbolic links

    func checkLink(
        _ stored: [CChar], _ status: FileStatus, _ parent: Node, _ descriptor: Int32
    ) {
        do throws(Errno) {
            if try isSoundLink(stored, parent, descriptor) { return }
            if try isMisplacedLink(stored, status, parent, descriptor) { return }
        } catch {
            if !isGone(error, UInt64(status.st_ino), parent, stored) {
                note(unreachable: volume.path(of: stored, in: parent), error)
            }
            return
        }
        addDamagedLink(stored, status, parent, descriptor)
    }

    func addDamagedLink(
        _ stored: [CChar], _ status: FileStatus, _ parent: Node, _ descriptor: Int32
    ) {
        add(
            CheckFinding(
                .link, path: volume.path(of: stored, in: parent),
                problem: "the target of the symbolic link does not authenticate",
                remedy: "moved to the quarantine")
        ) { () throws(Errno) in
            let kept = try quarantine.move(
                descriptor, stored, ["symbolic link: \(backingPath(parent, stored))"])
            nameRepair.forget(parent, stored, status)()
            return kept
        }
    }

    /// Throws where the link can't be read now, or is gone: that says nothing of the target.
    func isSoundLink(
        _ stored: [CChar], _ parent: Node, _ descriptor: Int32
    ) throws(Errno) -> Bool {
        let directoryID = try volume.backing.directoryState(of: parent).id
        return try volume.isSoundTarget(
            try volume.storedLink(descriptor, stored), in: directoryID, descriptor
        ) { file in
            tally.withLock { _ = $0.longNames.targets.insert(file) }
        } onPermit: { permit in
            tally.withLock { _ = $0.longNames.permits.insert(permit) }
        }
    }

    /// Finds permits of links that are not in the directory any more.
    func checkPermits(_ names: [[UInt8]], _ node: Node, _ descriptor: Int32) {
        for name in names {
            let text = String(decoding: name, as: UTF8.self)
            let isNeeded = tally.withLock { $0.longNames.permits.contains(text) }
            if isNeeded || nameRepair.isNeeded(permit: name, descriptor) { continue }
            addLeftover(of: node, name, "the permit of a symbolic link that is gone") {
                () throws(Errno) in try nameRepair.removePermit(name, descriptor)
            }
        }
    }

    /// Finds the record for another directory that an interrupted move left.
    func checkSecondRecord(of node: Node, _ descriptor: Int32) {
        guard nameRepair.hasMoveRecord(descriptor) else { return }
        let name = Array(DirectoryRecord.nextLinkName.utf8)
        addLeftover(of: node, name, "an interrupted move left it") { () throws(Errno) in
            try nameRepair.endMove(of: node, descriptor)
        }
    }

    private func addLeftover(
        of node: Node, _ name: [UInt8], _ problem: String, repair: () throws(Errno) -> Void
    ) {
        add(
            CheckFinding(
                .leftover, path: place(node, name), problem: problem, remedy: "taken away")
        ) { () throws(Errno) in
            try repair()
            return nil
        }
    }
}
