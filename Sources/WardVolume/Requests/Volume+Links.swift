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
    /// Bytes of the stored link: the mark, and base64url of 48 bytes. Base64url itself never has
    /// this length.
    static let storedBytes = 65
    static let associatedData = Array("long".utf8)

    /// 16 random bytes.
    var id: [UInt8]
    var lengthBytes: Int

    /// The name of the file in `ward.links`.
    var fileName: String { Base64URL.encode(id) }

    /// The plaintext that is sealed: the ID ‖ length 2 ‖ zero 2.
    var plain: [UInt8] { id + [UInt8(lengthBytes & 0xFF), UInt8(lengthBytes >> 8), 0, 0] }

    /// Returns nil if `plain` is no such record.
    init?(plain: [UInt8]) {
        guard plain.count == 20, plain[18] == 0, plain[19] == 0 else { return nil }
        id = Array(plain[0..<16])
        lengthBytes = Int(plain[16]) | Int(plain[17]) << 8
        guard Volume.longestShortTarget < lengthBytes, lengthBytes <= Volume.longestLinkTarget
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
    /// The bytes that a target's encryption adds: nonce 12 ‖ tag 16.
    static let linkOverheadBytes = 28
    /// Longest target, in bytes, whose encryption fits into the 4,095 bytes of a link of the
    /// backing store.
    static let longestShortTarget = 4095 * 3 / 4 - linkOverheadBytes
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
        let stored = try storedLink(of: node, context.sealed)
        var opened: [UInt8]?
        if stored.first == LongTarget.mark {
            if let long = openLongTarget(stored) { opened = try target(long, of: node) }
        } else {
            opened = openShortTarget(stored, context.sealed + 4096)
        }
        guard let opened else { throw damaged(node, "the link's target does not authenticate") }
        return opened
    }

    /// Reads the stored link into `buffer`, which has at least 4,096 bytes.
    private func storedLink(
        of node: Node, _ buffer: UnsafeMutableRawPointer
    ) throws(Errno) -> UnsafeRawBufferPointer {
        let count: Int
        do throws(Errno) {
            count = try backing.withLink(of: node) { directory, name throws(Errno) in
                try storage.readlinkat(directory, name, buffer, 4096)
            }
        } catch .staleNFSFileHandle {
            count = try backing.withKeptDescriptor(of: node) { kept throws(Errno) in
                try storage.readlinkat(kept, "", buffer, 4096)
            }
        }
        return UnsafeRawBufferPointer(start: buffer, count: count)
    }

    /// Returns the target in a stored link; nil if it does not authenticate. Decodes into `sealed`.
    private func openShortTarget(
        _ stored: UnsafeRawBufferPointer, _ sealed: UnsafeMutableRawPointer
    ) -> [UInt8]? {
        let sealedCount = Base64URL.decodedCount(stored.count)
        guard sealedCount >= Volume.linkOverheadBytes,
            Base64URL.decode(stored, to: sealed.assumingMemoryBound(to: UInt8.self))
        else { return nil }
        return openLinkTarget(UnsafeRawBufferPointer(start: sealed, count: sealedCount))
    }

    /// Returns the plain target of nonce 12 ‖ ciphertext ‖ tag 16; nil if it does not authenticate.
    func openLinkTarget(
        _ sealed: UnsafeRawBufferPointer, associatedData: [UInt8] = []
    ) -> [UInt8]? {
        let base = sealed.baseAddress!
        let plainCount = sealed.count - Volume.linkOverheadBytes
        guard plainCount >= 0 else { return nil }
        var ok = false
        let target = [UInt8](unsafeUninitializedCapacity: max(1, plainCount)) { out, initialized in
            ok = associatedData.withUnsafeBytes { data in
                keys.links.open(
                    base + 12, count: plainCount, to: out.baseAddress!, tag: base + 12 + plainCount,
                    nonce: base, associatedData: data.baseAddress, associatedDataBytes: data.count)
            }
            initialized = ok ? plainCount : 0
        }
        return ok ? target : nil
    }

    /// Returns the record in a stored link whose target is kept elsewhere; nil if it does not
    /// authenticate.
    func openLongTarget(_ stored: UnsafeRawBufferPointer) -> LongTarget? {
        guard stored.count == LongTarget.storedBytes, stored.first == LongTarget.mark,
            let sealed = Base64URL.decode(String(decoding: stored.dropFirst(), as: UTF8.self))
        else { return nil }
        let plain = sealed.withUnsafeBytes {
            openLinkTarget($0, associatedData: LongTarget.associatedData)
        }
        return plain.flatMap(LongTarget.init(plain:))
    }

    /// Returns the target that is kept in `ward.links`; nil if the file there is not this target's.
    func target(_ long: LongTarget) throws(Errno) -> [UInt8]? {
        try withLongTargets(makes: false) { directory throws(Errno) in
            let file = try storage.openat(
                directory, long.fileName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
            defer { storage.close(file) }
            // One byte more, to notice a file that is too long.
            let limit = long.lengthBytes + Volume.linkOverheadBytes + 1
            var sealed = [UInt8](repeating: 0, count: limit)
            let got = try sealed.withUnsafeMutableBufferPointer { out throws(Errno) in
                try storage.pread(file, out.baseAddress!, limit, at: 0)
            }
            guard got == limit - 1 else { return nil }
            return sealed.withUnsafeBytes {
                openLinkTarget(
                    UnsafeRawBufferPointer(rebasing: $0.dropLast()), associatedData: long.id)
            }
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
        guard stored == LongTarget.storedBytes else {
            return max(0, Base64URL.decodedCount(stored) - Volume.linkOverheadBytes)
        }
        return withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 16) { buffer in
            guard let stored = try? storedLink(of: node, buffer.baseAddress!) else { return 0 }
            return openLongTarget(stored)?.lengthBytes ?? 0
        }
    }

    // MARK: Making

    /// Makes a symbolic link. Throws `ENAMETOOLONG` for a target of more than `longestLinkTarget`
    /// bytes.
    public func makeSymbolicLink(
        _ parent: NodeID, _ name: UnsafeRawBufferPointer, target: UnsafeRawBufferPointer,
        caller: Caller, _ context: WorkerContext
    ) throws(Errno) -> Entry {
        guard target.count <= Volume.longestLinkTarget else { throw .fileNameTooLong }
        guard target.count > Volume.longestShortTarget else {
            return try makeSymbolicLink(
                parent, name, Base64URL.encode(keys.links.sealCombined(target, associatedData: [])),
                caller, context)
        }
        return try names.longTargets.withReadLock { () throws(Errno) in
            let long = LongTarget(id: SystemRandom.bytes(16), lengthBytes: target.count)
            try keepLongTarget(long, target)
            var isMade = false
            do throws(Errno) {
                let sealed = long.plain.withUnsafeBytes {
                    keys.links.sealCombined($0, associatedData: LongTarget.associatedData)
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
    private func keepLongTarget(
        _ long: LongTarget, _ target: UnsafeRawBufferPointer
    ) throws(Errno) {
        let sealed = keys.links.sealCombined(target, associatedData: long.id)
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
        let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW
        let directory: Int32
        do throws(Errno) {
            directory = try storage.openat(store.root, Volume.longTargetsName, flags, mode: 0)
        } catch .noSuchFileOrDirectory where makes {
            do throws(Errno) {
                try storage.mkdirat(store.root, Volume.longTargetsName, 0o700)
            } catch .fileExists {
                // Another thread was first.
            }
            try storage.fsync(store.root)
            directory = try storage.openat(store.root, Volume.longTargetsName, flags, mode: 0)
        }
        defer { storage.close(directory) }
        return try body(directory)
    }

    // MARK: Removing

    /// Returns the long target that goes with a name about to be removed; nil if there is none.
    /// `status` is that of the name's file.
    func longTarget(
        _ status: FileStatus, _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) -> LongTarget? {
        guard status.st_mode & S_IFMT == S_IFLNK, status.st_nlink == 1,
            status.st_size == LongTarget.storedBytes
        else { return nil }
        return withUnsafeTemporaryAllocation(byteCount: 128, alignment: 16) { buffer in
            guard
                let count = try? storage.readlinkat(
                    directory, stored, buffer.baseAddress!, buffer.count)
            else { return nil }
            return openLongTarget(UnsafeRawBufferPointer(rebasing: buffer.prefix(count)))
        }
    }

    /// Removes a target after its link's name went from `directory`. A power cut must not bring the
    /// name back without the target.
    func removeLongTarget(_ long: LongTarget, after directory: Int32) {
        if !store.traits.keepsOrder, (try? storage.fsync(directory)) == nil { return }
        removeLongTarget(long)
    }

    /// A file that can't be removed stays, and `ward check` finds it.
    private func removeLongTarget(_ long: LongTarget) {
        try? withLongTargets(makes: false) { directory throws(Errno) in
            try storage.unlinkat(directory, long.fileName, 0)
        }
    }
}
