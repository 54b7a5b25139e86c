import Glibc
import WardControl
import WardSystem

extension VolumeContainers {
    /// The result of `create`.
    public struct Creation: Sendable {
        public var container: Container
        /// False where the container existed; then at most its record was changed.
        public var isNew: Bool
        /// Group containers that were made.
        public var madeGroups: [ContainerID] = []
        /// Groups that the app named before and does not now; their containers stay.
        public var droppedGroups: [ContainerID] = []
        /// The class that a new container would get now, Apple's string; nil where this container
        /// has it. Another one means that the entitlement changed, or that a program set another
        /// class.
        public var differingClass: String?
    }

    /// Makes the container of an app or extension, and the missing containers of its groups.
    ///
    /// The new container's root, and nothing else, gets the class of the entitlement, or without
    /// one the volume's default. Files inherit the class (rows I1 and I3). Group containers get the
    /// volume's default. Where the container exists, only its record is updated from
    /// `entitlements`; nil leaves the record.
    ///
    /// `backgroundModes` are those of the app's Info.plist; nil leaves those of the record.
    ///
    /// Throws before any change where the ID is taken by another kind, or where the container or a
    /// group belongs to another team.
    public func create(
        _ id: ContainerID, _ kind: ContainerKind, _ entitlements: Entitlements?,
        backgroundModes: [String]? = nil
    ) throws(ContainerError) -> Creation {
        precondition(kind != .group, "groups are made by the apps that name them")
        let held = try lock()
        defer { withExtendedLifetime(held) {} }
        try sweep()
        let listing = try list()
        let existing = try existing(id, kind, listing, entitlements)
        try checkGroups(of: id, entitlements, listing)
        let defaultClass = try defaultClass()
        let record = ContainerRecord(
            id: id, kind: kind,
            classAtCreation: existing?.record.classAtCreation ?? entitlements?.dataProtection
                ?? defaultClass,
            entitlement: entitlements?.dataProtection, groups: entitlements?.groups ?? [],
            backgroundModes: backgroundModes ?? existing?.record.backgroundModes ?? [],
            team: entitlements?.team, created: existing?.record.created ?? Timestamp.now())
        try checkSize(record)

        if let existing, entitlements == nil {
            guard existing.record.backgroundModes != record.backgroundModes else {
                return Creation(container: existing, isNew: false)
            }
            var changed = existing.record
            changed.backgroundModes = record.backgroundModes
            try checkSize(changed)
            try update(existing, changed)
            return Creation(
                container: Container(
                    record: changed, path: existing.path,
                    protectionClass: existing.protectionClass), isNew: false)
        }
        if let existing {
            let made = try makeGroups(record, listing, defaultClass)
            if existing.record != record { try update(existing, record) }
            let now = Container(
                record: record, path: existing.path, protectionClass: existing.protectionClass)
            let wanted = record.entitlement ?? defaultClass
            return Creation(
                container: now, isNew: false, madeGroups: made,
                droppedGroups: existing.record.groups.filter { !record.groups.contains($0) },
                differingClass: wanted == now.protectionClass ? nil : wanted)
        }
        var made: [ContainerID] = []
        try make(record) { () throws(ContainerError) in
            made = try makeGroups(record, listing, defaultClass)
        }
        return Creation(
            container: Container(
                record: record, path: path(kind, id), protectionClass: record.classAtCreation),
            isNew: true, madeGroups: made)
    }

    // MARK: Before

    private func existing(
        _ id: ContainerID, _ kind: ContainerKind, _ listing: Listing, _ entitlements: Entitlements?
    ) throws(ContainerError) -> Container? {
        guard let found = listing.containers.first(where: { $0.id == id && $0.kind != .group })
        else {
            try requireFree(path(kind, id), id, listing)
            return nil
        }
        guard found.kind == kind else {
            throw ContainerError(
                .occupied, id.text, "there is an \(found.kind.rawValue) of that ID already")
        }
        if let entitlements, entitlements.team != found.record.team {
            throw ContainerError(
                .otherTeam, id.text,
                "its container is \(VolumeContainers.owned(by: found.record.team)), and these "
                    + "entitlements are \(VolumeContainers.owned(by: entitlements.team))")
        }
        return found
    }

    private func requireFree(
        _ path: String, _ id: ContainerID, _ listing: Listing
    ) throws(ContainerError) {
        if let odd = listing.oddities.first(where: { $0.path == path }) {
            throw ContainerError(
                .occupied, id.text, "\(path) is there and no container: \(odd.reason)")
        }
    }

    /// Such as "of team ABCDE12345".
    static func owned(by team: String?) -> String { team.map { "of team \($0)" } ?? "of no team" }

    private func checkGroups(
        of id: ContainerID, _ entitlements: Entitlements?, _ listing: Listing
    ) throws(ContainerError) {
        for group in entitlements?.groups ?? [] {
            guard
                let found = listing.containers.first(where: { $0.kind == .group && $0.id == group })
            else {
                try requireFree(path(.group, group), id, listing)
                continue
            }
            guard found.record.team != entitlements?.team else { continue }
            let users = listing.users(of: group).map(\.id.text)
            let whose = users.isEmpty ? "" : ", shared by \(users.joined(separator: ", "))"
            throw ContainerError(
                .otherTeam, id.text,
                "the group \(group) is \(VolumeContainers.owned(by: found.record.team))\(whose), and "
                    + "these entitlements are \(VolumeContainers.owned(by: entitlements?.team))")
        }
    }

    private func checkSize(_ record: ContainerRecord) throws(ContainerError) {
        let count = record.bytes.count
        guard count <= ContainerRecord.maximumBytes else {
            throw ContainerError(
                .tooLarge, record.id.text,
                "the names of its groups are too long together: its record would have \(count) bytes, "
                    + "and \(ContainerRecord.maximumBytes) are the most")
        }
    }

    // MARK: Making

    private func makeGroups(
        _ record: ContainerRecord, _ listing: Listing, _ defaultClass: String
    ) throws(ContainerError) -> [ContainerID] {
        var made: [ContainerID] = []
        for group in record.groups
        where !listing.containers.contains(where: { $0.kind == .group && $0.id == group }) {
            try make(
                ContainerRecord(
                    id: group, kind: .group, classAtCreation: defaultClass, team: record.team))
            made.append(group)
        }
        return made
    }

    /// Builds the container under another name, whole and durable, and then renames it, so that a
    /// crash leaves all of it or nothing. The closure `prepare` makes what must exist before the
    /// container; after a crash the record of the stage tells how to undo that.
    private func make(
        _ record: ContainerRecord,
        beforeItIsThere prepare: () throws(ContainerError) -> Void = {}
    ) throws(ContainerError) {
        let place = path(record.kind, record.id)
        let parent = try wrapping(place) { () throws(Errno) in
            var parent = try openRoot()
            for name in record.kind.directoryNames {
                parent = try Directories.openOrMake(name, in: parent.rawValue, mode: 0o755)
            }
            return parent
        }
        let stage = ContainerLayout.stagePrefix + VolumeContainers.randomName()
        do throws(ContainerError) {
            try wrapping(place) { () throws(Errno) in
                try build(record, stage, in: parent.rawValue)
            }
            try prepare()
            try wrapping(place) { () throws(Errno) in
                try Syscall.renameat(
                    parent.rawValue, stage, parent.rawValue, record.id.text,
                    flags: 1 /* RENAME_NOREPLACE */)
                try Syscall.fsync(parent.rawValue)
            }
        } catch {
            undoCreation(stage, in: parent.rawValue)
            throw error
        }
    }

    private func build(
        _ record: ContainerRecord, _ stage: String, in parent: Int32
    ) throws(Errno) {
        try Syscall.mkdirat(parent, stage, 0o700)
        let root = try Directories.open(stage, in: parent)
        // First, because the directories made below inherit it.
        try Directories.setProtectionClass(record.classAtCreation, of: root.rawValue)
        try Directories.setAttribute(ContainerRecord.attribute, record.bytes, of: root.rawValue)
        for name in record.kind.contents {
            try Syscall.mkdirat(root.rawValue, name, 0o700)
        }
        for name in record.kind.contents {
            let inner = OwnedDescriptor(
                adopting: try Syscall.openat(root.rawValue, name, O_RDONLY | O_DIRECTORY))
            try Syscall.fsync(inner.rawValue)
        }
        try Syscall.fsync(root.rawValue)
    }

    private func update(
        _ container: Container, _ record: ContainerRecord
    ) throws(ContainerError) {
        try wrapping(container.path) { () throws(Errno) in
            let node = try OwnedDescriptor(
                opening: container.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            try Directories.setAttribute(ContainerRecord.attribute, record.bytes, of: node.rawValue)
            try Syscall.fsync(node.rawValue)
        }
    }

    static func randomName() -> String {
        SystemRandom.bytes(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// Undoes a creation that was cut short. The new directories hold no files; a directory with
    /// files in it is left alone.
    func undoCreation(_ stage: String, in directory: Int32) {
        if let record = record(of: stage, in: directory), !record.groups.isEmpty,
            let listing = try? list(), let volume = try? openRoot(),
            let groups = try? Directories.openIfThere(
                ContainerKind.group.directoryNames, in: volume.rawValue)
        {
            for group in record.groups where listing.users(of: group).isEmpty {
                Directories.removeIfWithoutFiles(group.text, in: groups.rawValue)
            }
        }
        Directories.removeIfWithoutFiles(stage, in: directory)
    }
}
