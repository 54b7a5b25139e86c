import CWardLinux
import Glibc
import WardCrypto
import WardFormat
import WardSystem

/// The content of a stored link whose target is kept in `ward.links`: the name of the target's
/// file, and the target's length.
struct LongTarget: Equatable {
    /// The first byte of the stored link. No base64url begins with it.
    static let mark = UInt8(ascii: "~")
    /// Bytes of the plaintext that is sealed.
    static let plainBytes = 20
    static let associatedData = Array("long".utf8)

    /// 16 random bytes.
    var id: [UInt8]
    var lengthBytes: Int

    /// The name of the file in `ward.links`.
    var fileName: String { Base64URL.encode(id) }

    /// The plaintext that is sealed: the ID ‖ length 2 ‖ zero 2.
    var plain: [UInt8] { id + [UInt8(lengthBytes & 0xFF), UInt8(lengthBytes >> 8), 0, 0] }

    /// Returns nil if `plain` is no such record. `shortest`: the longest target, in bytes, that
    /// has room in a link.
    init?(plain: [UInt8], above shortest: Int) {
        guard plain.count == LongTarget.plainBytes, plain[18] == 0, plain[19] == 0 else {
            return nil
        }
        id = Array(plain[0..<16])
        lengthBytes = Int(plain[16]) | Int(plain[17]) << 8
        guard shortest < lengthBytes, lengthBytes <= Volume.longestLinkTarget
        else { return nil }
    }

    init(id: [UInt8], lengthBytes: Int) {
        self.id = id
        self.lengthBytes = lengthBytes
    }
}

// Symbolic links. A link of the backing store has no room for the encryption of a long target. Such
// a target is a file of `ward.links` in the root (docs/format.md §7), and the link names the file.
// So the link may be moved and have many names.
extension Volume {
    /// Longest target, in bytes, whose encryption fits into the 4,095 bytes of a link of the
    /// backing store.
    var longestShortTarget: Int { keys.links.longestShortTarget }
    /// Bytes of a stored link that names a file of `ward.links`: the mark, and base64url. Base64url
    /// itself never has this length.
    var longLinkBytes: Int { keys.links.longLinkBytes }
    /// The kernel's limit in bytes: `PATH_MAX` without its zero.
    static let longestLinkTarget = 4095
    /// The directory of long targets, in the root of the backing directory.
    package static let longTargetsName = "ward.links"

    // MARK: Reading

    /// Returns the target of a symbolic link. Throws `EINVAL` if the node is no link, `EIO` if the
    /// target does not authenticate.
    public func readLink(_ id: NodeID, _ context: WorkerContext) throws(Errno) -> [UInt8] {
        let node = node(id)
        guard node.type == S_IFLNK else { throw .invalidArgument }
        let opened =
            switch try content(of: node) {
            case .short(let target): target
            case .long(let long): try target(long, of: node)
            case nil: [UInt8]?.none
            }
        guard let opened else { throw damaged(node, Volume.damagedLink) }
        return opened
    }

    private static let damagedLink = "the link's target does not authenticate"

    /// Returns the content of a link by its names; nil if it does not authenticate. In format 2 it
    /// has to authenticate in the directory of each name.
    private func content(of node: Node) throws(Errno) -> LinkContent? {
        let stored = try storedLink(of: node)
        guard bindsPlaces else { return linkContent(stored, origin: []) }
        var found: LinkContent?
        guard node.link != nil else {
            // The permit may be gone with the name. The kernel looks the path up again.
            guard let kept = node.kept,
                let content = linkContent(stored, origin: kept.directory.id)
                    ?? keys.version1?.content(of: stored)
            else { throw .staleNFSFileHandle }
            return content
        }
        try requireSoundNames(of: node, Volume.damagedLink) { _, link throws(Errno) in
            let directory = try backing.directoryDescriptor(of: link.parent)
            let directoryID = try backing.directoryState(of: link.parent).id
            let opened = try linkContent(stored, in: directoryID, directory.rawValue)
            found = opened?.content ?? found
            return opened != nil
        }
        return found
    }

    /// Reads the stored link.
    private func storedLink(of node: Node) throws(Errno) -> [UInt8] {
        do throws(Errno) {
            return try backing.withLink(of: node) { directory, name throws(Errno) in
                try storedLink(directory, name)
            }
        } catch .staleNFSFileHandle {
            return try backing.withKeptDescriptor(of: node) { kept throws(Errno) in
                try storedLink(kept, "")
            }
        }
    }

    /// Reads the stored link of this name.
    package func storedLink(
        _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> [UInt8] {
        try withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer throws(Errno) in
            let count = try storage.readlinkat(
                directory, stored, buffer.baseAddress!, buffer.count)
            return Array(buffer.prefix(count))
        }
    }

    /// Returns the content of a stored link; nil if it does not authenticate. `origin`: the ID of
    /// the directory that it was made in; empty in format 1.
    func linkContent(_ stored: [UInt8], origin: [UInt8]) -> LinkContent? {
        keys.links.content(ofLink: stored, origin: origin)
    }

    /// Returns the target that is kept in `ward.links`; nil if the file there is not this target's.
    func target(_ long: LongTarget) throws(Errno) -> [UInt8]? {
        try withLongTargets(makes: false) { directory throws(Errno) in
            let file = try storage.openat(
                directory, long.fileName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
            defer { storage.close(file) }
            // One byte more, to notice a file that is too long.
            let limit = long.lengthBytes + keys.links.overheadBytes + 1
            var sealed = [UInt8](repeating: 0, count: limit)
            let got = try sealed.withUnsafeMutableBufferPointer { out throws(Errno) in
                try storage.pread(file, out.baseAddress!, limit, at: 0)
            }
            sealed.removeLast(limit - got)
            if let version1 = keys.version1,
                got == long.lengthBytes + version1.links.overheadBytes
            {
                return version1.links.target(sealed, associatedData: long.id)
            }
            guard got == limit - 1 else { return nil }
            return keys.links.target(sealed, associatedData: long.id)
        }
    }

    private func target(_ long: LongTarget, of node: Node) throws(Errno) -> [UInt8]? {
        do throws(Errno) {
            return try target(long)
        } catch .noSuchFileOrDirectory {
            // The target went with the link's last name. The kernel then looks the path up again.
            if node.link == nil { throw .staleNFSFileHandle }
            return nil
        }
    }

    /// The size for stat(2), in bytes. `status` is the backing link's.
    func linkTargetBytes(of node: Node, _ status: FileStatus) -> Int {
        let stored = Int(status.st_size)
        if keys.readsVersion1 {
            // The length alone does not tell the format.
            switch try? content(of: node) {
            case .short(let target): return target.count
            case .long(let long): return long.lengthBytes
            case nil: return 0
            }
        }
        guard stored == longLinkBytes else {
            return max(0, Base64URL.decodedCount(stored) - keys.links.overheadBytes)
        }
        guard case .long(let long) = try? content(of: node) else { return 0 }
        return long.lengthBytes
    }

    // MARK: Making

    /// Makes a symbolic link. Throws `ENAMETOOLONG` for a target of more than `longestLinkTarget`
    /// bytes.
    public func makeSymbolicLink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, target: UnsafeRawBufferPointer,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        guard target.count <= Volume.longestLinkTarget else { throw .fileNameTooLong }
        let origin = bindsPlaces ? try backing.directoryState(of: node(parent)).id : []
        guard target.count > longestShortTarget else {
            return try makeSymbolicLink(
                parent, name,
                Base64URL.encode(keys.links.seal(target, associatedData: origin)),
                caller, context)
        }
        return try names.longTargets.withReadLock { () throws(Errno) in
            let long = LongTarget(id: SystemRandom.bytes(16), lengthBytes: target.count)
            try keepLongTarget(long, target)
            var isMade = false
            do throws(Errno) {
                let sealed = try long.plain.withUnsafeBytesTyped { plain throws(Errno) in
                    try keys.links.seal(
                        plain, associatedData: LongTarget.associatedData + origin)
                }
                return try makeSymbolicLink(
                    parent, name, String(UnicodeScalar(LongTarget.mark)) + Base64URL.encode(sealed),
                    caller, context
                ) { isMade = true }
            } catch {
                // If the link was made, its target stays, even if the link's look-up failed.
                if !isMade { removeLongTarget(long) }
                throw error
            }
        }
    }

    private func makeSymbolicLink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, _ stored: String, _ caller: Caller,
        _ context: WorkerContext, whenMade: () -> Void = {}
    ) throws(Errno) -> Entry {
        try make(parent, name, context) { directory, encrypted, _ throws(Errno) in
            try store.asCaller(caller) { () throws(Errno) in
                try storage.symlinkat(target: stored, directory, encrypted)
            }
            whenMade()
        }
    }

    /// Stores a target in `ward.links`. It is durable before a link names it.
    func keepLongTarget(
        _ long: LongTarget, _ target: UnsafeRawBufferPointer
    ) throws(Errno) {
        let sealed = try keys.links.seal(target, associatedData: long.id)
        try withLongTargets(makes: true) { directory throws(Errno) in
            let file = try storage.openat(
                directory, long.fileName, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            defer { storage.close(file) }
            do throws(Errno) {
                try sealed.withUnsafeBytesTyped { bytes throws(Errno) in
                    try storage.pwrite(file, bytes.baseAddress!, bytes.count, at: 0)
                }
                try storage.fsync(file)
                try storage.fsync(directory)
            } catch {
                try? storage.unlinkat(directory, long.fileName, 0)
                throw error
            }
        }
    }

    /// Runs `body` with a descriptor of `ward.links`. `makes`: creates the directory if it is
    /// missing.
    package func withLongTargets<R>(
        makes: Bool, _ body: (Int32) throws(Errno) -> R
    ) throws(Errno) -> R {
        try store.withOwnDirectory(Volume.longTargetsName, makes: makes, body)
    }

    // MARK: Removing

    /// Returns the companions that go with a link's name about to be removed; nil for none.
    /// `status` is that of the name's file.
    func companions(_ status: FileStatus, _ name: StoredName) -> LinkCompanions? {
        guard status.st_mode & S_IFMT == S_IFLNK, status.st_nlink == 1,
            bindsPlaces || status.st_size == longLinkBytes,
            let stored = try? storedLink(name.descriptor, name.stored)
        else { return nil }
        let opened =
            bindsPlaces
            ? try? linkContent(stored, in: name.state.id, name.descriptor)
            : linkContent(stored, origin: []).map { (content: $0, origin: name.state.id) }
        guard let opened else { return nil }
        var companions = LinkCompanions()
        if case .long(let long) = opened.content { companions.target = long }
        if opened.origin != name.state.id { companions.permit = LinkPermit.name(of: stored) }
        return companions
    }

    /// Removes a link's companions after its name went from `directory`. A power cut must not bring
    /// the name back without them.
    func remove(_ companions: LinkCompanions, of directory: Int32) {
        if companions.target == nil, companions.permit == nil { return }
        if !store.traits.keepsOrder, (try? storage.fsync(directory)) == nil { return }
        if let permit = companions.permit { try? storage.unlinkat(directory, permit, 0) }
        if let target = companions.target { removeLongTarget(target) }
    }

    /// A file that can't be removed stays, and `ward check` finds it.
    func removeLongTarget(_ long: LongTarget) {
        try? withLongTargets(makes: false) { directory throws(Errno) in
            try storage.unlinkat(directory, long.fileName, 0)
        }
    }
}
