import CWardLinux
import Glibc
import WardSystem

/// The containers of one mounted volume, read and changed through its mount.
///
/// Creating and removing hold a lock (flock(2) on `Containers`), so changes run one at a time. Each
/// change is complete or undone after a crash: half-made and half-removed containers have special
/// names, and the next change takes them away.
public struct VolumeContainers: Sendable {
    /// The mount point: the volume's root.
    public let root: String
    /// How long to wait for another program's change.
    private let patience: Duration

    public init(root: String) { self.init(root: root, patience: .seconds(20)) }

    init(root: String, patience: Duration) {
        self.root = root
        self.patience = patience
    }

    /// A container as it is now.
    public struct Container: Sendable {
        public let record: ContainerRecord
        /// Absolute.
        public let path: String
        /// The class that new files in it get, Apple's string.
        public let protectionClass: String

        public var id: ContainerID { record.id }
        public var kind: ContainerKind { record.kind }
    }

    /// A directory among the containers that is no container.
    public struct Oddity: Equatable, Sendable {
        public enum Kind: String, Sendable {
            /// The directory has no record: another program made it.
            case noContainer
            /// The record is another container's: the directory is a copy, or was renamed.
            case copy
            /// The record can't be read.
            case damaged
            /// A `create` or `remove` that was cut short left it; the next one takes it away.
            case leftover
        }
        public let kind: Kind
        /// Absolute.
        public let path: String
        /// "it has no record"
        public let reason: String
    }

    /// All containers of a volume, and the other directories among them.
    public struct Listing: Sendable {
        /// Sorted by kind (applications, extensions, groups), then by ID.
        public var containers: [Container] = []
        public var oddities: [Oddity] = []

        /// The applications and extensions that name the group.
        public func users(of group: ContainerID) -> [Container] {
            containers.filter { $0.kind != .group && $0.record.groups.contains(group) }
        }

        /// The application or extension with this ID, else the group.
        public func container(_ id: ContainerID) -> Container? {
            containers.first { $0.id == id }
        }

        /// The container with this ID. Throws where there is none, and says what else has the name.
        public func required(_ id: ContainerID) throws(ContainerError) -> Container {
            if let container = container(id) { return container }
            if let odd = oddities.first(where: { $0.path.hasSuffix("/" + id.text) }) {
                throw ContainerError(
                    .occupied, id.text, "\(odd.path) is no container: \(odd.reason)")
            }
            throw ContainerError(.notFound, id.text, "there is no container of that ID")
        }
    }

    // MARK: Seeing

    /// All containers, and the other directories among them. Needs no lock and changes nothing.
    public func list() throws(ContainerError) -> Listing {
        try wrapping(root) { () throws(Errno) in
            let top = try openRoot()
            var listing = Listing()
            for kind in ContainerKind.allCases {
                guard
                    let directory = try Directories.openIfThere(
                        kind.directoryNames, in: top.rawValue)
                else { continue }
                for name in try Directories.names(in: directory.rawValue) {
                    look(at: name, kind, in: directory.rawValue, &listing)
                }
            }
            return listing
        }
    }

    /// The container at an absolute path; nil where there is none.
    public static func container(at path: String) -> Container? {
        guard let place = ContainerLayout.parse(containerPath: path),
            let node = try? OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
            let value = try? Directories.attribute(ContainerRecord.attribute, of: node.rawValue),
            let record = try? ContainerRecord(parsing: value), record.id == place.id,
            record.kind == place.kind,
            let protectionClass = try? Directories.protectionClass(of: node.rawValue)
        else { return nil }
        return Container(record: record, path: path, protectionClass: protectionClass)
    }

    /// The class of the volume's root, Apple's string: it holds where no other class is set.
    public func defaultClass() throws(ContainerError) -> String {
        try wrapping(root) { () throws(Errno) in
            let volume = try openRoot()
            guard let found = try Directories.protectionClass(of: volume.rawValue) else {
                throw .notSupported
            }
            return found
        }
    }

    private func look(
        at name: String, _ kind: ContainerKind, in directory: Int32, _ listing: inout Listing
    ) {
        let path = path(kind) + "/" + name
        func odd(_ kind: Oddity.Kind, _ reason: String) {
            listing.oddities.append(Oddity(kind: kind, path: path, reason: reason))
        }
        if name.hasPrefix(ContainerLayout.stagePrefix) {
            odd(.leftover, "left by a create that was cut short")
            return
        }
        if name.hasPrefix(ContainerLayout.removedPrefix) {
            odd(.leftover, "left by a remove that was cut short")
            return
        }
        do throws(Errno) {
            let node = try Directories.open(name, in: directory)
            guard
                let value = try Directories.attribute(ContainerRecord.attribute, of: node.rawValue)
            else { return odd(.noContainer, "it has no record") }
            let record: ContainerRecord
            do throws(ContainerRecord.Damage) {
                record = try ContainerRecord(parsing: value)
            } catch {
                return odd(.damaged, error.reason)
            }
            guard record.kind == kind, record.id.text == name else {
                return odd(
                    .copy,
                    "its record is of the \(record.kind.rawValue) \(record.id.text): a copy, "
                        + "or renamed")
            }
            let found = try Directories.protectionClass(of: node.rawValue)
            listing.containers.append(
                Container(record: record, path: path, protectionClass: found ?? ""))
        } catch {
            // A directory that was removed meanwhile is no oddity.
            if error == .noSuchFileOrDirectory { return }
            odd(error == .notDirectory ? .noContainer : .damaged, "\(error)")
        }
    }

    // MARK: Places

    func openRoot() throws(Errno) -> OwnedDescriptor {
        try OwnedDescriptor(opening: root, O_RDONLY | O_DIRECTORY)
    }

    func path(_ kind: ContainerKind) -> String {
        (root == "/" ? "" : root) + "/" + kind.directory
    }

    func path(_ kind: ContainerKind, _ id: ContainerID) -> String { path(kind) + "/" + id.text }

    func wrapping<R: ~Copyable>(
        _ subject: String, _ body: () throws(Errno) -> R
    ) throws(ContainerError) -> R {
        do throws(Errno) {
            return try body()
        } catch {
            throw ContainerError(.system(error), subject, "\(error)")
        }
    }

    // MARK: Changing

    /// Makes a container's standard directories again where its program removed them. Never goes
    /// through a link that the program left; ignores errors.
    public func restoreDirectories(of container: Container) {
        let place = container.kind.directoryNames + [container.id.text]
        for path in container.kind.contents {
            let names = path.split(separator: "/").map(String.init)
            do throws(Errno) {
                let volume = try openRoot()
                guard
                    let parent = try Directories.openIfThere(
                        place + names.dropLast(), in: volume.rawValue)
                else { continue }
                try Syscall.mkdirat(parent.rawValue, names.last ?? "", 0o700)
            } catch {
                continue
            }
        }
    }

    /// Opens and locks `Containers`, so that no other program makes or removes containers. The lock
    /// ends with the descriptor. Throws `busy` after `patience`.
    func lock() throws(ContainerError) -> OwnedDescriptor {
        let top = try wrapping(root) { () throws(Errno) in
            let volume = try openRoot()
            return try Directories.openOrMake(
                ContainerLayout.top, in: volume.rawValue, mode: 0o755)
        }
        let deadline = SystemClock.monotonic() + patience
        while flock(top.rawValue, LOCK_EX | LOCK_NB) != 0 {
            let reason = Errno(rawValue: errno)
            guard reason == .wouldBlock || reason == .interrupted else {
                throw ContainerError(.system(reason), ContainerLayout.top, "\(reason)")
            }
            guard SystemClock.monotonic() < deadline else {
                throw ContainerError(
                    .busy, root + "/" + ContainerLayout.top,
                    "another program makes or removes containers and does not come to an end")
            }
            usleep(10_000)
        }
        return top
    }

    /// Takes away the remains of changes that were cut short. The caller holds `lock()`.
    func sweep() throws(ContainerError) {
        let leftovers = try list().oddities.filter { $0.kind == .leftover }
        guard !leftovers.isEmpty else { return }
        for kind in ContainerKind.allCases {
            try wrapping(path(kind)) { () throws(Errno) in
                let volume = try openRoot()
                guard
                    let directory = try Directories.openIfThere(
                        kind.directoryNames, in: volume.rawValue)
                else { return }
                for name in try Directories.names(in: directory.rawValue) {
                    if name.hasPrefix(ContainerLayout.stagePrefix) {
                        undoCreation(name, in: directory.rawValue)
                    } else if name.hasPrefix(ContainerLayout.removedPrefix) {
                        try? finishRemoval(name, in: directory.rawValue)
                    }
                }
            }
        }
    }

    /// The record of a directory with a special name: no container yet, or no longer one.
    func record(of name: String, in directory: Int32) -> ContainerRecord? {
        guard let node = try? Directories.open(name, in: directory),
            let value = try? Directories.attribute(ContainerRecord.attribute, of: node.rawValue)
        else { return nil }
        return try? ContainerRecord(parsing: value)
    }
}
