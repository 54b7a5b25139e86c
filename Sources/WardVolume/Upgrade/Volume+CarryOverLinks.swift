import Glibc
import WardFormat
import WardSystem

// Carrying over symbolic links. A link's target can't be changed, so a new link takes the place of
// the old one, with its owner, times and attributes.
extension Volume {
    /// Carries over a link. `all`: its names, each with the directory; `nameCount`: the number that
    /// the old link has. Returns false where it is of format 2, or damaged. No program uses the
    /// volume.
    ///
    /// The names get the new link one after the other. A power cut in between parts them: both
    /// links have the same target.
    package func carryOver(
        link all: [(parent: Node, stored: [CChar])], nameCount: Int
    ) throws(Errno) -> Bool {
        let directory = try backing.directoryDescriptor(of: all[0].parent)
        return try withExtendedLifetime(directory) { () throws(Errno) in
            let stored = try storedLink(directory.rawValue, all[0].stored)
            guard let old = keys.version1?.content(of: stored),
                let target = try target(of: old)
            else { return false }
            let origin = try backing.directoryState(of: all[0].parent).id
            try names.longTargets.withReadLock { () throws(Errno) in
                let new = try sealedLink(target, origin)
                try replace(all[0].stored, in: directory.rawValue, by: new)
                for name in all.dropFirst() {
                    try replace(
                        name, byLink: all[0].stored, directory.rawValue, Array(new.utf8), origin)
                }
            }
            durability.dirt.noteChange()
            if case .long(let long) = old, all.count == nameCount {
                // A power cut must not bring a name of the old link back without its target.
                if store.traits.keepsOrder || areSynced(all.map(\.parent)) {
                    removeLongTarget(long)
                }
            }
            return true
        }
    }

    private func areSynced(_ directories: [Node]) -> Bool {
        directories.allSatisfy { node in
            guard let directory = try? backing.directoryDescriptor(of: node) else { return false }
            return withExtendedLifetime(directory) {
                (try? storage.fsync(directory.rawValue)) != nil
            }
        }
    }

    /// The target's bytes; nil where its file is not the target's, or is missing.
    private func target(of content: LinkContent) throws(Errno) -> [UInt8]? {
        switch content {
        case .short(let target): return target
        case .long(let long):
            do throws(Errno) {
                return try target(long)
            } catch .noSuchFileOrDirectory {
                return nil
            }
        }
    }

    /// Seals a target for a link that is made in the directory with the ID `origin`. A long one is
    /// stored, durably.
    private func sealedLink(_ target: [UInt8], _ origin: [UInt8]) throws(Errno) -> String {
        try target.withUnsafeBytesTyped { bytes throws(Errno) in
            guard bytes.count > longestShortTarget else {
                return Base64URL.encode(try keys.links.seal(bytes, associatedData: origin))
            }
            let long = LongTarget(id: SystemRandom.bytes(16), lengthBytes: bytes.count)
            try keepLongTarget(long, bytes)
            let sealed = try long.plain.withUnsafeBytesTyped { plain throws(Errno) in
                try keys.links.seal(plain, associatedData: LongTarget.associatedData + origin)
            }
            return String(UnicodeScalar(LongTarget.mark)) + Base64URL.encode(sealed)
        }
    }

    /// Puts a new link in the place of an old one.
    private func replace(
        _ stored: [CChar], in directory: Int32, by target: String
    ) throws(Errno) {
        let hidden = store.staging.next()
        try storage.symlinkat(target: target, directory, hidden)
        do throws(Errno) {
            try copyLook(of: stored, to: hidden, in: directory)
            try storage.renameat(directory, hidden, directory, stored, flags: 0)
        } catch {
            try? storage.unlinkat(directory, hidden, 0)
            throw error
        }
    }

    /// Gives a new link the owner, attributes and times of the old one.
    private func copyLook(
        of stored: [CChar], to hidden: String, in directory: Int32
    ) throws(Errno) {
        let from = try storage.openPlace(directory, stored)
        defer { storage.close(from) }
        let to = try storage.openPlace(directory, hidden)
        defer { storage.close(to) }
        let (old, new) = (try storage.fstat(from), try storage.fstat(to))
        var isChanged = false
        if old.st_uid != new.st_uid || old.st_gid != new.st_gid {
            try storage.chown(to, old.st_uid, old.st_gid)
            isChanged = true
        }
        for name in try storedNames(from) {
            let value = try storedValue(from, name)
            let isSealed = Volume.isSealed(attribute: name)
            let carried = isSealed ? try carriedAttribute(value, Volume.noOwnerID, name) : nil
            do throws(Errno) {
                try (carried ?? value).withUnsafeBytesTyped { bytes throws(Errno) in
                    try storage.setxattr(to, name, bytes, flags: 0)
                }
                isChanged = true
            } catch {
                // The system sets its labels itself.
                if isSealed { throw error }
            }
        }
        try storage.setTimes(to, access: old.st_atim, modification: old.st_mtim)
        // The new name must not be on the disk without them. A link can't be synced by itself.
        if isChanged, !store.traits.keepsOrder { try durability.sync() }
    }

    /// Puts a further name of a new link in the place of one of the old link. In another directory
    /// than the new link's it gets a permit first.
    private func replace(
        _ name: (parent: Node, stored: [CChar]), byLink link: [CChar], _ directory: Int32,
        _ target: [UInt8], _ origin: [UInt8]
    ) throws(Errno) {
        let other = try backing.directoryDescriptor(of: name.parent)
        try withExtendedLifetime(other) { () throws(Errno) in
            let id = try backing.directoryState(of: name.parent).id
            if try linkContent(target, in: id, other.rawValue) == nil {
                let permit = LinkPermit(originID: origin).linkTarget(
                    for: target, in: id, macKey: keys.linkPermits)
                try storage.symlinkat(
                    target: permit, other.rawValue, LinkPermit.name(of: target))
                if !store.traits.keepsOrder { try storage.fsync(other.rawValue) }
            }
            let hidden = store.staging.next()
            try storage.linkat(directory, link, other.rawValue, hidden)
            do throws(Errno) {
                try storage.renameat(
                    other.rawValue, hidden, other.rawValue, name.stored, flags: 0)
            } catch {
                try? storage.unlinkat(other.rawValue, hidden, 0)
                throw error
            }
        }
    }

    /// Removes targets of format 1 from `ward.links`. Every link is of format 2, so no link names
    /// them.
    package func removeVersion1Targets() throws(Errno) {
        guard let version1 = keys.version1 else { return }
        try names.withLongTargetsFixed { () throws(Errno) in
            do throws(Errno) {
                try withLongTargets(makes: false) { directory throws(Errno) in
                    var names: [String] = []
                    try storage.list(directory) {
                        names.append(String(decoding: $0.name, as: UTF8.self))
                    }
                    for name in names {
                        guard let id = Base64URL.decode(name), id.count == 16,
                            let sealed = try longTargetBytes(name, directory),
                            version1.links.target(sealed, associatedData: id) != nil
                        else { continue }
                        try storage.unlinkat(directory, name, 0)
                    }
                }
            } catch .noSuchFileOrDirectory {
                // The volume has never had any.
            }
        }
    }

    /// The bytes of a file of `ward.links`; nil where it is no file of this size.
    private func longTargetBytes(_ name: String, _ directory: Int32) throws(Errno) -> [UInt8]? {
        guard try storage.fstatat(directory, name).st_mode & S_IFMT == S_IFREG else { return nil }
        let file = try storage.openat(
            directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        var bytes = [UInt8](repeating: 0, count: 8192)
        let count = try bytes.withUnsafeMutableBufferPointer { out throws(Errno) in
            try storage.pread(file, out.baseAddress!, out.count, at: 0)
        }
        return Array(bytes[0..<count])
    }
}
