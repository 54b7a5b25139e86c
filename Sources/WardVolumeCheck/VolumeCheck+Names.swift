import Glibc
import WardFormat
import WardSystem
import WardVolume

// Names that do not open, and directories without a sound record. They are resolved when every
// other directory is known.
extension VolumeCheck {
    // MARK: Records

    /// Whether a record that authenticates seems to belong to another directory: no name opens
    /// under its ID. `resolve` decides when all IDs are known.
    func isRecordOfAnother(
        _ names: (sound: Int, bad: [[UInt8]]), _ node: Node, _ state: DirectoryState
    ) -> Bool {
        guard names.sound == 0, !names.bad.isEmpty, node !== volume.root else { return false }
        let isNew = tally.withLock { tally in
            guard tally.told.foreign.insert(node.inode).inserted else { return false }
            tally.badRecords.append(
                BadRecord(
                    node: node, problem: "its directory record is another directory's", target: [],
                    isForeign: true))
            return true
        }
        return isNew
    }

    func resolveRecords() {
        let bad = tally.withLock { tally in
            defer { tally.badRecords = [] }
            return tally.badRecords
        }
        for record in bad {
            if shouldStop() { return }
            do throws(Errno) {
                try resolve(record)
            } catch {
                if !isGone(error, record.node) {
                    note(unreachable: volume.path(of: record.node), error)
                }
            }
        }
    }

    private struct Contents {
        var names: [[UInt8]] = []
        /// Directory IDs in the headers of files, and in their lists of places.
        var hints: Set<[UInt8]> = []
        var classes: [ProtectionClass] = []
    }

    /// Makes the record again with the ID under which the names open. Headers say in which
    /// directory files were created, and a name authenticates with its directory's ID. If no ID
    /// fits, the directory gets a new one, and its names are lost.
    private func resolve(_ bad: BadRecord) throws(Errno) {
        let node = bad.node
        let descriptor = try volume.backing.openDirectoryDescriptor(of: node)
        defer { volume.storage.close(descriptor) }
        // A program may have moved the directory while its record was read.
        if volume.bindsPlaces, !bad.isForeign, try volume.backing.hasRecord(descriptor, node) {
            return tally.withLock { $0.opened.append(node) }
        }
        if try isMisplaced(bad, descriptor) { return }
        if volume.bindsPlaces, !bad.isForeign, let known = node.directory {
            // The volume knows the true content.
            restoreRecord(node, known, descriptor, bad.problem, bad.target)
            return tally.withLock { $0.opened.append(node) }
        }
        let contents = try contents(descriptor, node)
        let id = try directoryID(of: bad, contents, descriptor)
        if bad.isForeign, id == nil || id == node.directory?.id {
            // No other ID fits better: the names are wrong, not the record.
            return tally.withLock { $0.opened.append(node) }
        }
        let parent = node.link?.parent.directory?.protectionClass ?? .complete
        // Never weaker than the classes of the files in it.
        let protectionClass = contents.classes.reduce(parent) { $1.isStronger(than: $0) ? $1 : $0 }
        let record = DirectoryRecord(
            directoryID: id ?? SystemRandom.bytes(16),
            protectionClass: protectionClass)
        let isEmpty = contents.names.isEmpty
        if !isRepairing, !isEmpty {
            let what = "\(volume.path(of: node)): what is in it, before its record is repaired"
            tally.withLock { $0.report.unreachable.append(what) }
        }
        add(
            CheckFinding(
                .record, path: volume.path(of: node), protectionClass: record.protectionClass,
                problem: bad.problem,
                remedy: id != nil
                    ? "made again, with all names; class \(record.protectionClass.letter) for new files"
                    : isEmpty
                        ? "made anew: nothing is in it"
                        : "made anew: what is in it gets new names; class "
                            + "\(record.protectionClass.letter) for new files")
        ) { () throws(Errno) in
            let kept = try writeRecord(record, node, descriptor, bad.target)
            node.directory = nil
            tally.withLock { $0.opened.append(node) }
            return kept
        }
    }

    /// Returns the ID under which names in a directory without a sound record open; nil where no
    /// ID is found.
    private func directoryID(
        of bad: BadRecord, _ contents: Contents, _ descriptor: Int32
    ) throws(Errno) -> [UInt8]? {
        let (known, hints) = tally.withLock { (Set($0.directories.keys), $0.hints) }
        var inIt = contents.hints
        if volume.bindsPlaces, !bad.isForeign {
            // The record does not authenticate where the parent got a new ID. Names that open under
            // the ID in it prove that ID, and nothing else in it.
            if let claimed = DirectoryRecord.claimedID(String(decoding: bad.target, as: UTF8.self))
            {
                inIt.insert(claimed)
            }
            // Files that were put here belong in their own directory.
            inIt.subtract(known)
        }
        func first(_ ids: Set<[UInt8]>) throws(Errno) -> [UInt8]? {
            // The error of a name that can't be read now. It may be the name that decides, if no
            // other one does.
            var unread: Errno?
            for id in ids {
                for name in contents.names {
                    if volume.opens(name, in: id) { return id }
                    do throws(Errno) {
                        if try opensLong(name, descriptor, id) { return id }
                    } catch {
                        unread = error
                    }
                }
            }
            if let unread { throw unread }
            return nil
        }
        if let id = try first(inIt) { return id }
        if let id = try first(hints.subtracting(known)) { return id }
        return bad.isForeign ? try first(known) : nil
    }

    private func contents(_ descriptor: Int32, _ node: Node) throws(Errno) -> Contents {
        var contents = Contents()
        var files: [[CChar]] = []
        try volume.storage.list(descriptor) { entry in
            guard !entry.name.contains(UInt8(ascii: ".")),
                VolumeCheck.looksStored(entry.name)
                    || (entry.name.count == 44 && entry.name[0] == NameCipher.longNamePrefix)
            else { return }
            contents.names.append(entry.name)
            files.append(entry.name.zeroTerminated)
        }
        for stored in files {
            let header: FileHeader
            do throws(Errno) {
                guard let found = try volume.header(descriptor, stored) else { continue }
                header = found
            } catch {
                // A header that can't be read now may be the one that decides.
                if BackingStore.isGone(error), volume.store.isGone(nil, descriptor, stored) {
                    continue
                }
                throw error
            }
            contents.hints.insert(header.directoryID)
            if volume.bindsPlaces {
                contents.hints.formUnion(try volume.places(ofFile: stored, in: descriptor))
            }
            contents.classes.append(header.protectionClass)
        }
        return contents
    }

    /// Whether a long name opens under the ID. Throws where its link can't be read now: it may be
    /// the name that decides.
    func opensLong(
        _ stored: [UInt8], _ descriptor: Int32, _ id: [UInt8]
    ) throws(Errno) -> Bool {
        guard stored.first == NameCipher.longNamePrefix, stored.count == 44 else { return false }
        do throws(Errno) {
            let name = stored.zeroTerminated
            return try volume.names.readLongName(descriptor, name).map {
                volume.opens($0, in: id)
            } ?? false
        } catch {
            if error == .noSuchFileOrDirectory || error == .invalidArgument { return false }
            throw error
        }
    }

    // MARK: Names

    func resolveNames() {
        resolveOtherNames()
        let bad = tally.withLock { tally in
            defer { tally.badNames = [] }
            return tally.badNames
        }
        for name in bad {
            if shouldStop() { return }
            do throws(Errno) {
                try resolve(name)
            } catch {
                if !isGone(error, name.inode, name.parent, name.stored) {
                    note(
                        unreachable: place(
                            name.parent, name.stored.dropLast().map { UInt8(bitPattern: $0) }),
                        error)
                }
            }
        }
        let halves = tally.withLock { tally in
            defer { tally.longNames.halves = [] }
            return tally.longNames.halves.filter {
                !tally.longNames.claimedHalves.contains($0.stored)
            }
        }
        for half in halves where !shouldStop() { check(half) }
    }

    /// Moves the other names of files in the quarantine there, too.
    private func resolveOtherNames() {
        let others = tally.withLock { tally -> [FileTask] in
            let others = tally.links.otherNames.filter { tally.links.lost.contains($0.inode) }
            tally.links.otherNames.removeAll { tally.links.lost.contains($0.inode) }
            return others
        }
        for task in others {
            let directory: StoreDescriptor
            let status: FileStatus
            do throws(Errno) {
                directory = try volume.backing.directoryDescriptor(of: task.parent)
                status = try volume.storage.fstatat(directory.rawValue, task.stored)
            } catch {
                if !isGone(error, task.inode, task.parent, task.stored) {
                    note(unreachable: path(of: task), error)
                }
                continue
            }
            guard UInt64(status.st_ino) == task.inode else { continue }
            add(
                CheckFinding(
                    .header, path: path(of: task),
                    problem: "another name of a file of which nothing can be read",
                    remedy: "moved to the quarantine")
            ) { () throws(Errno) in
                let kept = try quarantine.move(
                    directory.rawValue, task.stored,
                    ["file: \(backingPath(task.parent, task.stored))"])
                nameRepair.forget(task.parent, task.stored, status)()
                return kept
            }
        }
    }

    /// Moves the file to the directory in which its name opens, or gives it back the name before
    /// the change. Otherwise a file of ward's gets a new name, and any other goes to the
    /// quarantine.
    private func resolve(_ bad: BadName) throws(Errno) {
        let directory = try volume.backing.directoryDescriptor(of: bad.parent)
        let status = try volume.storage.fstatat(directory.rawValue, bad.stored)
        guard UInt64(status.st_ino) == bad.inode else { return }
        let stored = bad.stored.dropLast().map { UInt8(bitPattern: $0) }
        let (known, isNamed) = tally.withLock { tally in
            (tally.directories, tally.links.named.contains(bad.inode))
        }
        let home = known.first {
            $0.value !== bad.parent && volume.opens(stored, in: $0.key)
                && !exists(bad.stored, in: $0.value)
        }?.value
        var finding = CheckFinding(
            .name, path: place(bad.parent, stored),
            problem:
                "its name does not open here: it was renamed or moved in the backing directory",
            remedy: "moved to the quarantine")
        let isOurs = try isOurs(bad.type, bad.stored, bad.parent, directory.rawValue)
        let misplaced = try misplaced(bad, directory.rawValue, status)
        let note = ["name that does not open: \(backingPath(bad.parent, bad.stored))"]
        if tally.withLock({ $0.untouched.contains(bad.inode) }), !isNamed {
            // The file may be readable in another lock state, or by a later version. It stays in
            // its place until then.
            finding.remedy = "left where it is"
            finding.outcome = .left("its header comes first")
            add(finding)
        } else if home == nil, let corrected = try corrected(stored, directory.rawValue, bad.parent)
        {
            finding.problem = "one character of its name was changed in the backing directory"
            finding.remedy = "called \(volume.path(of: corrected, in: bad.parent)) again"
            tally.withLock { _ = $0.longNames.claimedHalves.insert(corrected) }
            add(finding) { () throws(Errno) in
                try move(bad, to: bad.parent, corrected)
                return nil
            }
        } else if isNamed || !isOurs {
            if isNamed { finding.problem += "; the file has another name" }
            add(finding) { () throws(Errno) in
                let kept = try quarantine.move(directory.rawValue, bad.stored, note)
                nameRepair.forget(bad.parent, bad.stored, status)()
                return kept
            }
        } else if let home {
            finding.remedy = "moved back to \(volume.path(of: home))"
            add(finding) { () throws(Errno) in
                try move(bad, to: home, bad.stored)
                if let misplaced { examineAgain(misplaced, in: home, bad.stored) }
                return nil
            }
        } else if let misplaced, known[misplaced.homeID] == nil {
            finding.remedy = "left where it is"
            finding.outcome = .left(VolumeCheck.lostHome)
            add(finding)
        } else {
            let name = "recovered-\(bad.inode)"
            let home = misplaced.flatMap { known[$0.homeID] }
            finding.remedy =
                (home.map { "moved back to \(volume.path(of: $0)), " } ?? "") + "called \(name)"
            add(finding) { () throws(Errno) in
                let target = home ?? bad.parent
                let stored = try nameRepair.storedName(name, in: target)
                try move(bad, to: target, stored)
                if home != nil, let misplaced { examineAgain(misplaced, in: target, stored) }
                return nil
            }
        }
    }

    /// Returns the place where a file, directory or link under a bad name belongs; nil where that
    /// is its directory, or is not known.
    private func misplaced(
        _ bad: BadName, _ directory: Int32, _ status: FileStatus
    ) throws(Errno) -> Misplaced? {
        guard bad.type == S_IFLNK else { return misplaced(bad) }
        guard volume.bindsPlaces, try !isSoundLink(bad.stored, bad.parent, directory),
            let origin = origin(ofLink: try volume.storedLink(directory, bad.stored))
        else { return nil }
        return Misplaced(
            parent: bad.parent, stored: bad.stored, hasName: false, inode: bad.inode,
            type: S_IFLNK, linkCount: UInt64(status.st_nlink), homeID: origin)
    }

    func exists(_ stored: [CChar], in directory: Node) -> Bool {
        guard let descriptor = try? volume.backing.directoryDescriptor(of: directory) else {
            return true
        }
        return (try? volume.storage.fstatat(descriptor.rawValue, stored)) != nil
    }

    /// Whether the file behind the name belongs to this volume and has something to keep. Throws
    /// where this can't be read now.
    func isOurs(
        _ type: mode_t, _ stored: [CChar], _ parent: Node, _ directory: Int32
    ) throws(Errno) -> Bool {
        switch type {
        case S_IFREG: return try volume.header(directory, stored) != nil
        case S_IFDIR:
            // Even without a record: the files in it may be readable, although no record could be
            // made just now.
            return true
        case S_IFLNK:
            if try isSoundLink(stored, parent, directory) { return true }
            return origin(ofLink: try volume.storedLink(directory, stored)) != nil
        default: return false
        }
    }

    private func move(_ bad: BadName, to target: Node, _ stored: [CChar]) throws(Errno) {
        try contexts.withTyped { context throws(Errno) in
            try nameRepair.move(
                inode: bad.inode, type: bad.type, from: bad.parent, bad.stored, to: target, stored,
                context)
        }
    }
}
