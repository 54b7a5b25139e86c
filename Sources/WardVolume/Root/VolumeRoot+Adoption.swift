import Glibc
import WardFormat
import WardSystem

/// How a copy of a volume was made, according to its state record.
public enum CopyStanding: Equatable, Sendable {
    /// The volume was not in use: findings in the copy are damage.
    case clean
    /// The volume was in use, or had ended uncleanly.
    case inUse
    /// The state record is missing or does not authenticate: it tells nothing.
    case unknown(reason: String)
}

extension VolumeRoot {
    /// Checks by the root's record that the volume key belongs to the volume in this directory.
    /// Reads the state record. Changes nothing.
    static func examineCopy(
        _ path: String, volumeKey: borrowing SecretBytes, storage: any Storage
    ) throws(VolumeOpenError) -> CopyStanding {
        let descriptor = try openRoot(path, storage)
        defer { storage.close(descriptor) }
        let keys = try derive(volumeKey, standing(descriptor, storage), path)
        let record = try readRecord(descriptor, path, keys, storage)
        guard record.directoryID == keys.rootID else {
            throw VolumeOpenError(
                .damaged, path: path + "/" + DirectoryRecord.linkName,
                "is the record of another directory, not of the root")
        }
        do throws(VolumeOpenError) {
            return try readState(descriptor, path, keys, storage).isInUse ? .inUse : .clean
        } catch {
            switch error.code {
            case .system(.noSuchFileOrDirectory): return .unknown(reason: "it is missing")
            case .damaged, .system(.tooManySymbolicLinkLevels):
                return .unknown(reason: error.reason)
            default: throw error
            }
        }
    }

    /// Writes the state record of a copy that was made while the volume was in use, durably.
    ///
    /// It does so for a clean record too: the record may have been copied before the volume was
    /// mounted. Where the copy's record tells nothing, the new one says `standing`.
    static func acceptCopyInUse(
        _ path: String, _ standing: FormatStanding, volumeKey: borrowing SecretBytes,
        storage: any Storage
    ) throws(VolumeOpenError) {
        let descriptor = try openRoot(path, storage)
        defer { storage.close(descriptor) }
        let keys = try derive(volumeKey, self.standing(descriptor, storage), path)
        let before = try? readState(descriptor, path, keys, storage)
        // An earlier adoption did this, and was interrupted later.
        if let before, !before.isInUse, before.doubtful == [0...before.epoch] { return }
        try call(path, "the state record can't be written") { () throws(Errno) in
            try writeState(
                before?.ofCopyInUse() ?? .ofUnknownCopy(standing), descriptor, keys, storage)
        }
    }

    private static func openRoot(
        _ path: String, _ storage: any Storage
    ) throws(VolumeOpenError) -> Int32 {
        try call(path, "can't be opened") { () throws(Errno) in
            try storage.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, mode: 0)
        }
    }
}

extension Volume {
    /// Checks that `volumeKey` belongs to the volume in `backingPath`, which is not mounted.
    /// Returns what its state record tells. Changes nothing.
    ///
    /// Throws `VolumeOpenError`: `damaged` where the root's directory record is missing or belongs
    /// to another key.
    public static func examineCopy(
        backingPath: String, volumeKey: borrowing SecretBytes
    ) throws(VolumeOpenError) -> CopyStanding {
        try VolumeRoot.examineCopy(
            backingPath, volumeKey: volumeKey, storage: PosixStorage())
    }

    /// Where the copy in `backingPath` stands between the formats. It is right once `examineCopy`
    /// has authenticated the root's record and returned `copy`. A state record that tells nothing
    /// does not count. Then `takesOlder` decides whether structures of format 1 may be left.
    public static func format(
        ofCopy backingPath: String, _ copy: CopyStanding, takesOlder: Bool
    ) -> FormatStanding {
        guard case .unknown = copy,
            let root = try? OwnedDescriptor(opening: backingPath, O_RDONLY | O_DIRECTORY)
        else { return format(ofBackingPath: backingPath) }
        let format = VolumeRoot.format(root.rawValue, PosixStorage())
        return takesOlder && format >= .version2 ? .upgrading : FormatStanding(format)
    }

    /// Takes the volume in `backingPath`, which is not mounted, for a copy that was made while the
    /// volume was in use. Half-copied changes are then accepted, with an event, until every file
    /// was read (docs/format.md §8). Durable when it returns; can be repeated.
    ///
    /// `standing`: what a new state record says where the copy's own tells nothing.
    public static func acceptCopyInUse(
        backingPath: String, standing: FormatStanding, volumeKey: borrowing SecretBytes
    ) throws(VolumeOpenError) {
        try VolumeRoot.acceptCopyInUse(
            backingPath, standing, volumeKey: volumeKey, storage: PosixStorage())
    }
}
