import Glibc
import WardFormat
import WardSystem
import WardVolume

/// A stored name that does not open.
struct BadName: Sendable {
    let parent: Node
    /// Zero-terminated.
    let stored: [CChar]
    let inode: UInt64
    let type: mode_t
}

/// A directory whose record is missing, does not authenticate, or is another directory's.
struct BadRecord: Sendable {
    let node: Node
    let problem: String
    /// The target of `.ward`, where it was a symbolic link.
    let target: [UInt8]
    /// The record authenticates, but names show that it belongs to another directory.
    let isForeign: Bool
}

/// The half of a long name with its ciphertext, where the other half is missing.
struct LongNameHalf: Sendable {
    let parent: Node
    let name: [UInt8]

    /// The names of both halves, zero-terminated.
    var link: [CChar] { name.zeroTerminated }
    var stored: [CChar] { [CChar(bitPattern: NameCipher.longNamePrefix)] + link.dropFirst(2) }
}

// Examines directories: their records, names and attributes, symbolic links, and leftovers.
extension VolumeCheck {
    struct FileTask: Sendable {
        let inode: UInt64
        let parent: Node
        /// Zero-terminated.
        let stored: [CChar]
        let hasName: Bool
        /// `Volume.quietNames` before the name was found.
        let seen: UInt64?
    }

    struct Visit: Sendable {
        var directories: [Node] = []
        var files: [FileTask] = []
    }

    /// The names of a directory, sorted by their form.
    private struct Listing {
        var names: [DirectoryEntry] = []
        var bad: [DirectoryEntry] = []
        var long: [DirectoryEntry] = []
        var longLinks: [DirectoryEntry] = []
        var leftovers: [[UInt8]] = []
        /// Permits of symbolic links.
        var permits: [[UInt8]] = []
        /// There is a record of a move.
        var hasSecondRecord = false
        /// Names that ward never makes.
        var others: [DirectoryEntry] = []
    }

    func visit(_ node: Node) -> Visit {
        if shouldStop() { return Visit() }
        do throws(Errno) {
            return try look(at: node)
        } catch {
            if !isGone(error, node) { note(unreachable: volume.path(of: node), error) }
            return Visit()
        }
    }

    private func look(at node: Node) throws(Errno) -> Visit {
        let descriptor = try volume.backing.openDirectoryDescriptor(of: node)
        defer { volume.storage.close(descriptor) }
        guard let state = try stateOfRecord(node, descriptor) else { return Visit() }
        let listing = try list(descriptor, node, state)
        let sound = listing.names.count + listing.long.count
        if isRecordOfAnother((sound, listing.bad.map(\.name)), node, state) { return Visit() }
        tally.withLock {
            $0.report.progress.directories += 1
            $0.directories[state.id] = node
        }
        checkAttributes(of: node, descriptor, path: volume.path(of: node)) { state.id }
        for name in listing.leftovers { checkLeftover(name, node, descriptor) }
        for entry in listing.longLinks { noteIfOrphaned(entry.name, node, descriptor) }
        var visit = Visit()
        for entry in listing.names { add(entry, hasName: true, node, descriptor, &visit) }
        for entry in listing.long {
            do throws(Errno) {
                let hasName = try hasLongName(entry, descriptor, state)
                add(entry, hasName: hasName, node, descriptor, &visit)
            } catch {
                note(unreachable: place(node, entry.name), error)
            }
        }
        for entry in listing.bad { add(entry, hasName: false, node, descriptor, &visit) }
        for entry in listing.others {
            do throws(Errno) {
                if try isDamagedName(entry, descriptor, node, state) {
                    add(entry, hasName: false, node, descriptor, &visit)
                } else {
                    tally.withLock { $0.report.foreign.append(place(node, entry.name)) }
                }
            } catch {
                let stored = entry.name.zeroTerminated
                if !isGone(error, nil, node, stored) {
                    note(unreachable: place(node, entry.name), error)
                }
            }
        }
        checkPermits(listing.permits, node, descriptor)
        if listing.hasSecondRecord { checkSecondRecord(of: node, descriptor) }
        return visit
    }

    /// The path of a file by its stored name.
    func place(_ directory: Node, _ stored: [UInt8]) -> String {
        let parent = volume.path(of: directory)
        return (parent == "/" ? "" : parent) + "/" + String(decoding: stored, as: UTF8.self)
    }

    // MARK: Records

    enum RecordOnDisk {
        case sound(DirectoryRecord)
        case newer(String)
        case bad(String, target: [UInt8])
    }

    /// Reads `.ward` of a directory, without an event. `parentID`: the ID of the directory that it
    /// is in.
    func recordOnDisk(
        _ descriptor: Int32, parentID: [UInt8]
    ) throws(Errno) -> RecordOnDisk {
        var target = [UInt8](repeating: 0, count: 4096)
        do throws(Errno) {
            let count = try target.withUnsafeMutableBufferPointer { out throws(Errno) in
                try volume.storage.readlinkat(
                    descriptor, DirectoryRecord.linkName, out.baseAddress!, out.count)
            }
            target.removeLast(target.count - count)
        } catch .noSuchFileOrDirectory {
            return .bad("its directory record is missing", target: [])
        } catch .invalidArgument {
            return .bad("its directory record is no symbolic link", target: [])
        }
        do throws(FormatError) {
            return .sound(try volume.directoryRecord(target, parentID: parentID))
        } catch {
            if error.code == .newerVersion { return .newer(error.description) }
            return .bad("its directory record is damaged", target: target)
        }
    }

    /// Returns the directory's state; nil where its record is bad. Where the volume knows the true
    /// content, the record is written again.
    private func stateOfRecord(
        _ node: Node, _ descriptor: Int32
    ) throws(Errno) -> DirectoryState? {
        switch try recordOnDisk(descriptor, parentID: try volume.backing.parentID(of: node)) {
        case .sound(let record):
            try checkSeal(record, node, descriptor)
            if let known = node.directory, !known.isClassRefused,
                let problem = difference(record, known),
                try isStillDifferent(node, known, descriptor)
            {
                restoreRecord(node, known, descriptor, problem, [])
                return known
            }
            return try volume.backing.directoryState(of: node)
        case .newer(let reason):
            tally.withLock {
                $0.report.unreachable.append("\(volume.path(of: node)): \(reason)")
            }
            return nil
        case .bad(let problem, let target):
            // A directory that is being removed loses its name before its record. A directory that
            // is being moved has a second record, which the volume reads.
            _ = try volume.backing.statusByName(of: node)
            if volume.bindsPlaces, try volume.backing.hasRecord(descriptor, node) {
                return try volume.backing.directoryState(of: node)
            }
            if let known = node.directory, !volume.bindsPlaces {
                restoreRecord(node, known, descriptor, problem, target)
                return known
            }
            tally.withLock {
                $0.badRecords.append(
                    BadRecord(node: node, problem: problem, target: target, isForeign: false))
            }
            return nil
        }
    }

    private func difference(_ record: DirectoryRecord, _ known: DirectoryState) -> String? {
        if record.directoryID != known.id { return "its directory record is another's" }
        return record.protectionClass == known.protectionClass
            && record.isSynchronised == known.isMarked
            ? nil : "its directory record is an older one"
    }

    /// A program may have changed the class while the record was read.
    private func isStillDifferent(
        _ node: Node, _ known: DirectoryState, _ descriptor: Int32
    ) throws(Errno) -> Bool {
        try volume.names.withRecordFixed(of: known) { () throws(Errno) in
            let parentID = try volume.backing.parentID(of: node)
            guard case .sound(let record) = try recordOnDisk(descriptor, parentID: parentID)
            else { return false }
            return difference(record, known) != nil
        }
    }

    func restoreRecord(
        _ node: Node, _ known: DirectoryState, _ descriptor: Int32, _ problem: String,
        _ target: [UInt8]
    ) {
        let path = volume.path(of: node)
        add(
            CheckFinding(
                .record, path: path, protectionClass: known.protectionClass, problem: problem,
                remedy: "written again as it was")
        ) { () throws(Errno) in
            // Under the lock: a program that sets the class now does so before this write or after
            // it.
            return try volume.names.withRecordFixed(of: known) { () throws(Errno) in
                return try writeRecord(
                    DirectoryRecord(
                        directoryID: known.id, protectionClass: known.protectionClass,
                        isSynchronised: known.isMarked), node, descriptor, target)
            }
        }
    }

    /// Puts a record in place by a rename. Returns where the quarantine keeps the old one.
    func writeRecord(
        _ record: DirectoryRecord, _ node: Node, _ descriptor: Int32, _ target: [UInt8]
    ) throws(Errno) -> String? {
        let note = ["directory record of \(backingPath(of: node))"]
        var kept: String?
        if !target.isEmpty {
            kept = try quarantine.keep(target, note)
        } else if (try? volume.storage.fstatat(descriptor, DirectoryRecord.linkName)) != nil {
            kept = try quarantine.move(descriptor, DirectoryRecord.linkName, note)
        }
        try nameRepair.putRecord(record, of: node, in: descriptor)
        return kept
    }

    /// The path below the backing directory, of stored names.
    func backingPath(of node: Node) -> String {
        var parts: [String] = []
        var current = node
        while current !== volume.root, parts.count < 512, let link = current.link {
            parts.append(backingName(link.name))
            current = link.parent
        }
        return parts.isEmpty ? "." : parts.reversed().joined(separator: "/")
    }

    func backingPath(_ directory: Node, _ stored: [CChar]) -> String {
        let parent = backingPath(of: directory)
        return (parent == "." ? "" : parent + "/") + backingName(stored)
    }

    func backingName(_ stored: [CChar]) -> String {
        String(decoding: stored.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    // MARK: Names

    private func list(
        _ descriptor: Int32, _ node: Node, _ state: DirectoryState
    ) throws(Errno) -> Listing {
        var listing = Listing()
        let isRoot = node === volume.root
        let ownNames = volume.keys.ownNames
        try volume.storage.list(descriptor) { entry in
            let name = entry.name
            if ownNames.isSecondRecord(name) { listing.hasSecondRecord = true }
            if ownNames.isRecord(name) { return }
            if ownNames.isPermit(name) { return listing.permits.append(name) }
            if name.starts(with: ".ward-".utf8) {
                if !nameRepair.isInUse(name, in: node) { listing.leftovers.append(name) }
            } else if isRoot, name.elementsEqual("README".utf8) || name.starts(with: "ward.".utf8) {
                return
            } else if name.count == 45, name.starts(with: ".n".utf8) {
                listing.longLinks.append(entry)
            } else if name.count == 44, name[0] == NameCipher.longNamePrefix {
                listing.long.append(entry)
            } else if volume.opens(name, in: state.id) {
                listing.names.append(entry)
            } else if VolumeCheck.looksStored(name) {
                listing.bad.append(entry)
            } else {
                listing.others.append(entry)
            }
        }
        return listing
    }

    /// Whether ward could have made the name: base64url of a tag and at least one byte.
    static func looksStored(_ name: [UInt8]) -> Bool {
        guard let decoded = Base64URL.decode(String(decoding: name, as: UTF8.self)) else {
            return false
        }
        return decoded.count > 16 && decoded.count <= 16 + NameCipher.longestShortName
    }

    /// Whether both halves of a long name are there and match. If one seems to be missing, looks
    /// again under the lock: both are made and removed under it.
    func hasLongName(
        _ entry: DirectoryEntry, _ descriptor: Int32, _ state: DirectoryState
    ) throws(Errno) -> Bool {
        let stored = entry.name.zeroTerminated
        func isSound() throws(Errno) -> Bool {
            do throws(Errno) {
                return try volume.names.readLongName(descriptor, stored).map {
                    volume.opens($0, in: state.id)
                } ?? false
            } catch {
                // Missing, or no link. Other errors say nothing about the half.
                if error == .noSuchFileOrDirectory || error == .invalidArgument { return false }
                throw error
            }
        }
        if try isSound() { return true }
        return try volume.names.withLongNamesFixed { () throws(Errno) in try isSound() }
    }

    private func add(
        _ entry: DirectoryEntry, hasName: Bool, _ parent: Node, _ descriptor: Int32,
        _ visit: inout Visit
    ) {
        let stored = entry.name.zeroTerminated
        let seen = volume.quietNames
        var looks = 0
        var found: FileStatus?
        while found == nil {
            looks += 1
            do throws(Errno) {
                found = try volume.storage.fstatat(descriptor, stored)
            } catch {
                if isGone(error, nil, parent, stored) { return }
                // The backing store finds it when asked again: a program made it anew, or it was
                // never away.
                if looks < 100, error.mayMeanGone { continue }
                return note(unreachable: place(parent, entry.name), error)
            }
        }
        guard let status = found else { return }
        let type = status.st_mode & S_IFMT
        guard status.st_dev == volume.store.device else {
            tally.withLock {
                $0.report.unreachable.append(
                    "\(place(parent, entry.name)): something is mounted there")
            }
            return
        }
        if !hasName {
            tally.withLock {
                $0.badNames.append(
                    BadName(
                        parent: parent, stored: stored, inode: UInt64(status.st_ino), type: type))
            }
        }
        guard type == S_IFDIR || type == S_IFREG else {
            if hasName, type == S_IFLNK { checkLink(stored, status, parent, descriptor) }
            return
        }
        let inode = UInt64(status.st_ino)
        if type == S_IFDIR { return addDirectory(inode, stored, parent, seen: seen, &visit) }
        let task = FileTask(
            inode: inode, parent: parent, stored: stored, hasName: hasName, seen: seen)
        let isFirst = tally.withLock { tally in
            guard status.st_nlink > 1 else { return true }
            if hasName { tally.links.named.insert(inode) }
            if tally.links.examined.insert(inode).inserted { return true }
            if hasName { tally.links.otherNames.append(task) }
            return false
        }
        if isMisplaced(task, status, descriptor) {
            // Another name of the file may be where it belongs.
            if status.st_nlink > 1 {
                tally.withLock { if isFirst { $0.links.examined.remove(inode) } }
            }
            return
        }
        if isFirst { visit.files.append(task) }
    }

    private func addDirectory(
        _ inode: UInt64, _ stored: [CChar], _ parent: Node, seen: UInt64?, _ visit: inout Visit
    ) {
        do throws(Errno) {
            let node = try volume.retainNode(
                inode: inode, type: S_IFDIR, stored, in: parent, seen: seen)
            tally.withLock { $0.retained.append(node) }
            visit.directories.append(node)
        } catch {
            if isGone(error, inode, parent, stored) { return }
            note(unreachable: volume.path(of: stored, in: parent), error)
        }
    }
}
