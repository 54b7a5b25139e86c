import Glibc
import Synchronization
import WardCrypto
import WardFormat
import WardSystem

/// The tree of names: paths of nodes, long names, the changes that are under way.
///
/// Concurrency: any thread; each part guards itself.
package final class NameTree: Sendable {
    private let store: BackingStore
    private let keys: VolumeKeys
    private let root: Node
    /// A long name has two halves. Threads that make or remove one share this lock. A check takes
    /// it exclusively, so that it never reports a half that a request is about to use as a
    /// leftover.
    ///
    /// Threads that share it may wait for class decisions, and other threads take it inside a
    /// decision. So the exclusive holder never waits for decisions.
    let longNames = ReadWriteLock(.longNames)
    /// Shared from the making of a long link's target until the link exists. A check takes it
    /// exclusively.
    let longTargets = ReadWriteLock(.longTargets)
    /// Exclusive while a directory moves to another directory, which changes its record. Shared
    /// while a record is written for another reason: it names the parent.
    let directoryMoves = ReadWriteLock(.directoryMoves)
    let changes = NameChanges()
    /// Creations of files between the new name in the backing store and the file's node.
    let creations = NameChanges()
    let movedNodes = MovedNodes()

    init(_ store: BackingStore, _ keys: VolumeKeys, root: Node) {
        self.store = store
        self.keys = keys
        self.root = root
    }

    // MARK: Paths

    /// Returns the path of a node inside the volume, for messages.
    func path(of node: Node) -> String {
        var parts: [String] = []
        var current = node
        while current !== root, parts.count < 512 {
            guard let link = current.link, let directory = link.parent.directory else {
                return "?/" + parts.reversed().joined(separator: "/")
            }
            parts.append(plainName(of: link, in: directory) ?? "?")
            current = link.parent
        }
        return "/" + parts.reversed().joined(separator: "/")
    }

    /// Returns the path of a node by one of its names.
    func path(of link: NodeLink) -> String {
        let name = link.parent.directory.flatMap { plainName(of: link, in: $0) } ?? "?"
        return path(of: name, in: link.parent)
    }

    /// Returns the path of a name in a directory.
    func path(of name: String, in directory: Node) -> String {
        let parent = path(of: directory)
        return (parent == "/" ? "" : parent) + "/" + name
    }

    private func plainName(of link: NodeLink, in directory: DirectoryState) -> String? {
        plainNameBytes(of: link, in: directory).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Returns the plaintext of a name; nil where it is not ward's, or its other half is missing.
    func plainNameBytes(of link: NodeLink, in directory: DirectoryState) -> [UInt8]? {
        if link.name.first == CChar(bitPattern: NameCipher.longNamePrefix) {
            guard let descriptor = directory.openDescriptor,
                let target = try? readLongName(descriptor.rawValue, link.name)
            else { return nil }
            return target.withUnsafeBytes { keys.names.decrypt($0, in: directory.id) }
        }
        return link.name.withUnsafeBytes {
            keys.names.decrypt(UnsafeRawBufferPointer(rebasing: $0.dropLast()), in: directory.id)
        }
    }

    // MARK: Long names

    /// Runs `body`, with `longNames` shared where `isLong`: `body` makes or removes a long name.
    @inline(__always)
    func withLongNames<R>(
        if isLong: Bool, _ body: () throws(Errno) -> R
    ) throws(Errno) -> R {
        if isLong { longNames.beginReading() }
        defer { if isLong { longNames.endReading() } }
        return try body()
    }

    /// Runs `body`, with `directoryMoves` exclusive where a name moves to another directory. The
    /// kernel does one such rename at a time anyway (`lock_rename`, fs/namei.c).
    func withDirectoryMove(
        if isMove: Bool, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        guard isMove else { return try body() }
        try directoryMoves.withWriteLock(body)
    }

    /// Runs `body`, with `directoryMoves` shared where `isWanted`.
    func withMovesFixed<R>(
        if isWanted: Bool, _ body: () throws(Errno) -> R
    ) throws(Errno) -> R {
        guard isWanted else { return try body() }
        return try directoryMoves.withReadLock(body)
    }

    /// Returns the target of a long name's link: base64url of the ciphertext. Nil where the
    /// ciphertext's hash is not that in the stored name.
    package func readLongName(
        _ directory: Int32, _ stored: UnsafePointer<CChar>
    ) throws(Errno) -> [UInt8]? {
        guard strlen(stored) == 44 else { return nil }
        let link = NameCipher.longNameLink(stored)
        return try withUnsafeTemporaryAllocation(byteCount: 512, alignment: 1) {
            buffer throws(Errno) -> [UInt8]? in
            let count = try store.storage.readlinkat(directory, link, buffer.baseAddress!, 512)
            let target = UnsafeRawBufferPointer(rebasing: buffer[0..<count])
            var sealed = [UInt8](repeating: 0, count: Base64URL.decodedCount(count))
            let decoded = sealed.withUnsafeMutableBufferPointer {
                Base64URL.decode(target, to: $0.baseAddress!)
            }
            guard decoded else { return nil }
            let hash = Base64URL.encode(SHA256Digest.hash(sealed))
            guard
                hash.utf8.elementsEqual(
                    UnsafeBufferPointer(start: stored + 1, count: 43).lazy.map {
                        UInt8(bitPattern: $0)
                    })
            else { return nil }
            return [UInt8](target)
        }
    }

    /// Makes the symbolic link beside a long name, before the name itself.
    func makeLongLink(
        _ directory: Int32, _ stored: UnsafePointer<CChar>, _ name: UnsafeRawBufferPointer,
        _ directoryID: [UInt8]
    ) throws(Errno) {
        let link = NameCipher.longNameLink(stored)
        do throws(Errno) {
            try store.storage.symlinkat(
                target: keys.names.longNameTarget(name, in: directoryID), directory, link)
        } catch .fileExists {
        }
    }

    /// Removes the link of a long name, but only once the name is gone: a name without its link
    /// would be damaged.
    func removeLongLink(_ directory: Int32, _ stored: UnsafePointer<CChar>) {
        do throws(Errno) {
            _ = try store.storage.fstatat(directory, stored)
        } catch .noSuchFileOrDirectory {
            try? store.storage.unlinkat(directory, NameCipher.longNameLink(stored), 0)
        } catch {}
    }
}
