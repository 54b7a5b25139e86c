import Glibc
import WardSystem

extension VolumeContainers {
    /// The containers that go when one container is removed.
    public struct Removal: Sendable {
        public var container: Container
        /// Group containers that no other app names; they are removed, too.
        public var groups: [Container] = []
        /// Group containers that other apps name; they stay.
        public var keptGroups: [Container] = []
    }

    /// The containers that `remove` would take away now. Throws where no container has the ID, or
    /// where it is a group that apps name.
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

    /// Removes a container with all that is in it, and the groups that no other app names. After
    /// the first rename the container is gone; the next change removes what a crash left. Returns
    /// the removed containers.
    ///
    /// `announced` is the removal that the user agreed to. Throws, with nothing changed, where more
    /// containers would go now, or where the ID is another container's by now.
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

    /// Renames the container, durably, to a name with the prefix of removed ones; then removes it.
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

    /// Removes a renamed container. Its record names the groups that go with it, so the root goes
    /// last.
    func finishRemoval(_ name: String, in directory: Int32) throws(ContainerError) {
        // Only a container that was renamed has this prefix and a record.
        guard let record = record(of: name, in: directory) else { return }
        if record.kind != .group, !record.groups.isEmpty {
            try removeGroups(record)
            // The record forgets the groups now. Where the rest can't be removed yet, a later group
            // of the same name must not go with it.
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
            // The disk may be full; the container is removed without this.
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
