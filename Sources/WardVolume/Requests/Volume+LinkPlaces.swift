import Glibc
import WardFormat
import WardSystem

/// The content of a stored link.
enum LinkContent {
    /// The target.
    case short([UInt8])
    case long(LongTarget)
}

/// The parts of a link that lie elsewhere than in the link.
struct LinkCompanions {
    var target: LongTarget?
    /// The stored name of its permit, in the link's directory.
    var permit: String?
}

// The directories in which symbolic links belong (format 2). A link authenticates in the directory
// that it was made in. In another one it needs a permit (`LinkPermit`).
extension Volume {
    /// Returns the content of a stored link in a directory, and the ID of the directory that it was
    /// made in. Nil if it does not authenticate here. Throws where its permit can't be read now. A
    /// link of format 1 authenticates everywhere.
    func linkContent(
        _ stored: [UInt8], in directoryID: [UInt8], _ directory: Int32
    ) throws(Errno) -> (content: LinkContent, origin: [UInt8])? {
        if let content = linkContent(stored, origin: directoryID)
            ?? keys.version1?.content(of: stored)
        {
            return (content, directoryID)
        }
        let target: [UInt8]
        do throws(Errno) {
            target = try storedLink(directory, LinkPermit.name(of: stored))
        } catch .noSuchFileOrDirectory, .invalidArgument {
            return nil
        }
        guard
            let permit = try? LinkPermit(
                linkTarget: String(decoding: target, as: UTF8.self), for: stored, in: directoryID,
                macKey: keys.linkPermits),
            let content = linkContent(stored, origin: permit.originID)
        else { return nil }
        return (content, permit.originID)
    }

    /// Runs `body`, which gives a link a name in another directory. The permit comes before the
    /// name. A damaged link gets none: it stays damaged.
    ///
    /// `keepsOthers`: the link keeps other names, so the permit of the old directory stays.
    func withLinkPlace(
        _ stored: UnsafePointer<CChar>, in directory: Int32, _ from: DirectoryState,
        _ to: StoredName, keepsOthers: Bool, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        let link = try storedLink(directory, stored)
        guard let origin = try linkContent(link, in: from.id, directory)?.origin else {
            return try body()
        }
        let name = LinkPermit.name(of: link)
        var isMade = false
        if origin != to.state.id {
            // The permit is there where the directory has another name of the link, or where a
            // power cut left it.
            if try linkContent(link, in: to.state.id, to.descriptor) == nil {
                try? storage.unlinkat(to.descriptor, name, 0)
                let permit = LinkPermit(originID: origin).linkTarget(
                    for: link, in: to.state.id, macKey: keys.linkPermits)
                try storage.symlinkat(target: permit, to.descriptor, name)
                isMade = true
            }
        }
        do throws(Errno) {
            if isMade, !store.traits.keepsOrder { try storage.fsync(to.descriptor) }
            try body()
        } catch {
            if isMade { try? storage.unlinkat(to.descriptor, name, 0) }
            throw error
        }
        guard !keepsOthers, origin != from.id else { return }
        if !store.traits.keepsOrder, (try? storage.fsync(directory)) == nil { return }
        try? storage.unlinkat(directory, name, 0)
    }
}
