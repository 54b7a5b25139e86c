import Glibc
import WardSystem

extension VolumeContainers {
    /// What goes when a container goes.
    public struct Removal: Sendable {
        public var container: Container
        /// Group containers that nothing else names: they go, too.
        public var groups: [Container] = []
        /// Group containers that others name: they stay.
        public var keptGroups: [Container] = []
    }

    /// What `remove` would take away now. Throws where there is no such container, or it is a group
    /// that apps name.
    public func removal(of id: ContainerID) throws(ContainerError) -> Removal {
        try removal(of: id, list())
    }

    private func removal(
        of id: ContainerID, _ listing: Listing
    ) throws(ContainerError) -> Removal {
        let container = try listing.required(id)
        var removal = Removal(container: container)
        if container.kind == .group {
            let users = listing.users(of: id).map(\.id.text)
            guard users.isEmpty else {
                throw ContainerError(
                    .inUse, id.text,
                    "it is the container of a group, and goes with the last app that names it: "
                        + users.joined(separator: ", "))
            }
            return removal
        }
        for group in listing.containers
        where group.kind == .group && container.record.groups.contains(group.id) {
            if listing.users(of: group.id).count == 1 {
                removal.groups.append(group)
            } else {
                removal.keptGroups.append(group)
            }
        }
        return removal
    }

    /// Removes a container with all that is in it, and the groups that nothing else names. From the
    /// first rename on it is gone; what was left when this was cut short goes with the next change.
    /// Returns what went.
    ///
    /// `announced`: what somebody was told goes. Where more would go by now, or it is another
    /// container, throws, and nothing changes.
    @discardableResult
    public func remove(
        _ id: ContainerID, announced: Removal? = nil
    ) throws(ContainerError) -> Removal {
        let held = try lock()
        defer { withExtendedLifetime(held) {} }
        try sweep()
        let removal = try removal(of: id, list())
        if let announced { try requireNoMore(removal, announced) }
        for container in [removal.container] + removal.groups {
            try requireNoMount(in: container.path)
        }
        try setAsideAndRemove(removal.container)
        return removal
    }

    /// Renames the container, durably, to what says that it goes; then takes it away.
    private func setAsideAndRemove(_ container: Container) throws(ContainerError) {
        let name = ContainerLayout.removedPrefix + VolumeContainers.randomName()
        let directory = try wrapping(container.path) { () throws(Errno) in
            var parent = try openRoot()
            for name in container.kind.directoryNames {
                parent = try Directories.open(name, in: parent.rawValue)
            }
            try Syscall.renameat(parent.rawValue, container.id.text, parent.rawValue, name)
            try Syscall.fsync(parent.rawValue)
            return parent
        }
        try finishRemoval(name, in: directory.rawValue)
    }

    private func requireNoMore(
        _ removal: Removal, _ announced: Removal
    ) throws(ContainerError) {
        let id = removal.container.id.text
        guard removal.container.kind == announced.container.kind,
            removal.container.record.created == announced.container.record.created
        else { throw ContainerError(.changed, id, "it was removed meanwhile, and made anew") }
        let known = Set(announced.groups.map(\.id))
        if let more = removal.groups.first(where: { !known.contains($0.id) }) {
            throw ContainerError(
                .changed, id, "the group \(more.id) would go with it now, which was not said before"
            )
        }
    }

    /// The record in the renamed container says which groups go with it; its root goes last, and so
    /// does the record.
    func finishRemoval(_ name: String, in directory: Int32) throws(ContainerError) {
        // Nothing but a container that was renamed here has this name and a record.
        guard let record = record(of: name, in: directory) else { return }
        if record.kind != .group, !record.groups.isEmpty {
            try removeGroups(record)
            // Once: where the rest can't go now, a group of that name that is there later has
            // nothing to do with this.
            forgetGroups(record, name, in: directory)
        }
        let path = path(record.kind) + "/" + name
        try wrapping(path) { () throws(Errno) in
            try Directories.removeTree(Array(name.utf8), in: directory)
        }
        try wrapping(path) { () throws(Errno) in try Syscall.fsync(directory) }
    }

    private func forgetGroups(_ record: ContainerRecord, _ name: String, in directory: Int32) {
        var record = record
        record.groups = []
        do throws(Errno) {
            let node = try Directories.open(name, in: directory)
            try Directories.setAttribute(ContainerRecord.attribute, record.bytes, of: node.rawValue)
        } catch {
            // On a full disk; it goes all the same.
        }
    }

    private func removeGroups(_ record: ContainerRecord) throws(ContainerError) {
        let listing = try list()
        for group in listing.containers
        where group.kind == .group && record.groups.contains(group.id)
            && listing.users(of: group.id).isEmpty && group.record.team == record.team
        {
            try setAsideAndRemove(group)
        }
    }

    private func requireNoMount(in path: String) throws(ContainerError) {
        let inside = (try? MountTable())?.entries.first {
            PathBytes.isInside($0.mountPoint, path)
        }
        guard let inside else { return }
        throw ContainerError(
            .busy, path, "\(inside.mountPoint) is mounted inside it: unmount that first")
    }
}
