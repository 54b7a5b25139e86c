import CWardLinux
import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem
import WardVolume

/// Finds the files of a volume that belong into a backup. It works on the backing directory and
/// reads names and attributes alone, with the volume key. It opens nothing for writing, takes no
/// lock and asks no daemon: it works in every state, and beside a mount. A file that comes or goes
/// meanwhile is in the result or not.
///
/// The walk leaves out (docs/backup.md):
///
/// - files with the mark `user.ward.backup-excluded`, and all below a marked directory;
/// - `Library/Caches` and `tmp` of a container, and of a volume that is an app's home;
/// - unfinished work.
///
/// Where the walk is not sure, it leaves a file in.
public final class BackupWalk: Sendable {
    /// The mark, on a file or directory. Any value.
    public static let exclusionAttribute = "user.ward.backup-excluded"

    /// Directories that are open at the same time.
    private static let batch = 128

    let keys: VolumeKeys
    private let rootPath: String
    /// The stored name of the mark.
    let markName: String

    /// `volumeKey`: 32 bytes. Throws `system` where no memory can be locked.
    public init(
        backingPath: String, volumeKey: borrowing SecretBytes
    ) throws(VolumeOpenError) {
        rootPath = backingPath
        do throws(CryptoError) {
            let standing = Volume.format(ofBackingPath: backingPath)
            keys = try VolumeKeys(
                volumeKey: volumeKey, format: standing.format, isUpgrading: standing.isUpgrading)
        } catch {
            throw VolumeOpenError(
                .system(.noMemory), path: backingPath,
                "no memory could be locked for keys (ulimit -l): \(error)")
        }
        markName = keys.storedAttributeName(
            Array(BackupWalk.exclusionAttribute.utf8), "user.w.")
    }

    /// Walks through the volume with up to `threads` threads. `body` gets one directory at a time,
    /// each after its parent. With `stamps`, entries carry a stamp that later tells whether they
    /// have changed. Throws where the root can't be listed.
    public func run(
        threads: Int = 4, stamps: Bool = false, _ body: (BackupDirectory) -> Void
    ) throws(VolumeOpenError) -> BackupProblems {
        let (root, device) = try openRoot()
        defer { Syscall.close(root) }
        let problems = ProblemList()
        var waiting = [Place(path: [], parentID: DirectoryRecord.noParent, role: .root)]
        while !waiting.isEmpty {
            let places = Array(waiting.suffix(BackupWalk.batch))
            waiting.removeLast(places.count)
            let listings = ParallelSlots<Listing>(places.count)
            Parallel.forEach(places.count, threads: threads, share: 2, name: "ward-backup") {
                index in
                listings[index] = self.list(places[index], root, device, problems)
            }
            if waiting.isEmpty, places.count == 1, places[0].path.isEmpty, listings[0] == nil {
                throw VolumeOpenError(
                    .system(problems.firstErrno ?? .noSuchFileOrDirectory), path: rootPath,
                    "can't be listed")
            }
            examine(listings, threads, stamps, problems)
            for index in 0..<places.count {
                guard let listing = listings[index] else { continue }
                let directory = finish(listing, &waiting)
                listing.close()
                body(directory)
            }
        }
        return problems.all
    }

    private func openRoot() throws(VolumeOpenError) -> (descriptor: Int32, device: dev_t) {
        do throws(Errno) {
            let root = try OwnedDescriptor(opening: rootPath, O_RDONLY | O_DIRECTORY)
            let device = try Syscall.fstat(root.rawValue).st_dev
            return (root.release(), device)
        } catch {
            throw VolumeOpenError(.system(error), path: rootPath, "can't be opened: \(error)")
        }
    }

    // MARK: One directory

    struct Place {
        /// Stored path from the root, without slashes at the ends.
        var path: [UInt8]
        /// The ID of the directory that it is in; `noParent` for the root, and where it is unknown.
        var parentID: [UInt8]
        var role: Role
    }

    final class Listing: @unchecked Sendable {
        // Sendable: one thread fills it; then several threads work on its entries, each on its own
        // ones.
        let place: Place
        let descriptor: Int32
        let record: DirectoryRecord?
        let entries: ParallelSlots<BackupEntry>
        let role: Role

        init(
            _ place: Place, _ descriptor: Int32, _ record: DirectoryRecord?, _ role: Role,
            _ entries: [BackupEntry]
        ) {
            self.place = place
            self.descriptor = descriptor
            self.record = record
            self.role = role
            self.entries = ParallelSlots(entries)
        }

        func close() { Syscall.close(descriptor) }
    }

    /// Nil where the directory is gone or can't be listed.
    private func list(
        _ place: Place, _ root: Int32, _ device: dev_t, _ problems: ProblemList
    ) -> Listing? {
        var descriptor: Int32 = -1
        do throws(Errno) {
            descriptor = try open(place.path, root)
            guard try Syscall.fstat(descriptor).st_dev == device else {
                // Another file system is mounted there: the volume does not show that either.
                Syscall.close(descriptor)
                return nil
            }
            let record = try readRecord(descriptor, in: place.parentID)
            if record == nil, !BackupWalk.ownDirectories.contains(place.path),
                try Syscall.fstat(descriptor).st_nlink > 0
            {
                problems.add(
                    place.path, nil,
                    "its directory record is damaged: nothing that is in it is left out by its name"
                )
            }
            var entries: [BackupEntry] = []
            try PosixStorage().list(descriptor) { entry in
                entries.append(BackupEntry(name: entry.name, kind: BackupEntry.Kind(entry.type)))
            }
            entries.sort { $0.name.lexicographicallyPrecedes($1.name) }
            let role = record == nil && !place.path.isEmpty ? .ordinary : place.role
            return Listing(place, descriptor, record, role, entries)
        } catch {
            if descriptor >= 0 { Syscall.close(descriptor) }
            if error != .noSuchFileOrDirectory && error != .notDirectory
                && error != .tooManySymbolicLinkLevels
            {
                problems.add(place.path, error, "can't be listed: \(error)")
            }
            return nil
        }
    }

    /// The directories of ward's own in the root. They have no record, and belong to every backup.
    private static let ownDirectories = [Capsule.directoryName, Volume.longTargetsName].map {
        Array($0.utf8)
    }

    /// Opens piece by piece: a path of the volume may be longer than the kernel takes in one call.
    private func open(_ path: [UInt8], _ root: Int32) throws(Errno) -> Int32 {
        let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK
        if path.isEmpty { return try Syscall.openat(root, ".", flags) }
        var rest = path[...]
        var here: Int32 = -1
        defer { if here >= 0 { Syscall.close(here) } }
        while true {
            var piece = rest
            if rest.count > 3500 {
                let end = rest.prefix(3500).lastIndex(of: UInt8(ascii: "/")) ?? rest.startIndex
                piece = rest[..<end]
            }
            rest = rest[piece.endIndex...].drop { $0 == UInt8(ascii: "/") }
            let next = try NodeName(bytes: piece).withCString { name throws(Errno) in
                try Syscall.openat(here < 0 ? root : here, name, flags)
            }
            if rest.isEmpty { return next }
            if here >= 0 { Syscall.close(here) }
            here = next
        }
    }

    /// Nil where there is no valid record. `parentID`: the ID of the directory that it is in.
    func readRecord(
        _ descriptor: Int32, in parentID: [UInt8]
    ) throws(Errno) -> DirectoryRecord? {
        for name in keys.recordNames {
            if let record = try readRecord(descriptor, name, parentID) { return record }
        }
        return nil
    }

    private func readRecord(
        _ descriptor: Int32, _ name: String, _ parentID: [UInt8]
    ) throws(Errno) -> DirectoryRecord? {
        var target = [UInt8](repeating: 0, count: 256)
        do throws(Errno) {
            let count = try Syscall.readlinkat(descriptor, name, &target, target.count)
            return try? keys.directoryRecord(
                String(decoding: target[0..<count], as: UTF8.self), parentID: parentID)
        } catch {
            if error == .noSuchFileOrDirectory || error == .invalidArgument { return nil }
            throw error
        }
    }

    /// Returns the target of the link beside a long name: base64url of the ciphertext. Nil where
    /// the link is gone or belongs to another name.
    func longName(_ stored: [UInt8], in directory: [UInt8]) -> [UInt8]? {
        guard stored.count == 44,
            let root = try? OwnedDescriptor(opening: rootPath, O_RDONLY | O_DIRECTORY),
            let number = try? open(directory, root.rawValue)
        else { return nil }
        let descriptor = OwnedDescriptor(adopting: number)
        var target = [UInt8](repeating: 0, count: 512)
        let count = try? NodeName(bytes: Array(".n".utf8) + stored.dropFirst()).withCString {
            name throws(Errno) in
            try Syscall.readlinkat(descriptor.rawValue, name, &target, target.count)
        }
        guard let count,
            let sealed = Base64URL.decode(String(decoding: target[0..<count], as: UTF8.self)),
            Base64URL.encode(SHA256Digest.hash(sealed)).utf8.elementsEqual(stored.dropFirst())
        else { return nil }
        return Array(target[0..<count])
    }

    // MARK: Putting together

    private func finish(_ listing: Listing, _ waiting: inout [Place]) -> BackupDirectory {
        let id =
            listing.place.path.isEmpty ? keys.rootID : listing.record?.directoryID
        var entries = (0..<listing.entries.count).compactMap { listing.entries[$0] }
        excludeLongLinks(&entries)
        let special = id.map { specialNames(listing.role, $0, entries) } ?? [:]
        for entry in entries where entry.kind == .directory && entry.exclusion == nil {
            let role = special[entry.name] ?? (listing.role == .containerParent ? .home : .ordinary)
            waiting.append(
                Place(
                    path: listing.place.path.appending(component: entry.name),
                    parentID: id ?? DirectoryRecord.noParent, role: role))
        }
        return BackupDirectory(
            path: listing.place.path, id: id, entries: entries)
    }

    /// The link that holds a long name is left out with the name.
    private func excludeLongLinks(_ entries: inout [BackupEntry]) {
        var exclusions: [[UInt8]: BackupEntry.Exclusion] = [:]
        for entry in entries where entry.name.first == NameCipher.longNamePrefix {
            if let exclusion = entry.exclusion {
                exclusions[Array(entry.name.dropFirst())] = exclusion
            }
        }
        if exclusions.isEmpty { return }
        for index in entries.indices where entries[index].name.starts(with: ".n".utf8) {
            entries[index].exclusion =
                entries[index].exclusion ?? exclusions[Array(entries[index].name.dropFirst(2))]
        }
    }
}

extension [UInt8] {
    /// Returns the path with one more component.
    func appending(component: [UInt8]) -> [UInt8] {
        isEmpty ? component : self + [UInt8(ascii: "/")] + component
    }
}
