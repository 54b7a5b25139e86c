import Glibc
import WardFormat
import WardSystem

/// What a copy's state record says of how the copy was made.
public enum CopyStanding: Equatable, Sendable {
    /// The volume was not in use: findings stay what they are, damage.
    case clean
    /// It was, or its state record says that it ended uncleanly.
    case inUse
    /// There is no state record, or none that authenticates: it does not say.
    case unknown(reason: String)
}

extension VolumeRoot {
    /// Checks that the volume key is the one of the volume in this directory, by its root's record,
    /// and looks at its state record. Changes nothing.
    static func examineCopy(
        _ path: String, volumeKey: borrowing SecretBytes, storage: any Storage
    ) throws(VolumeOpenError) -> CopyStanding {
        let keys = try derive(volumeKey, path)
        let descriptor = try openRoot(path, storage)
        defer { storage.close(descriptor) }
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
    /// Of a clean one too: the record may have been copied before the volume was mounted.
    static func acceptCopyInUse(
        _ path: String, volumeKey: borrowing SecretBytes, storage: any Storage
    ) throws(VolumeOpenError) {
        let keys = try derive(volumeKey, path)
        let descriptor = try openRoot(path, storage)
        defer { storage.close(descriptor) }
        let before = try? readState(descriptor, path, keys, storage)
        // Done before, and interrupted since.
        if let before, !before.isInUse, before.doubtful == [0...before.epoch] { return }
        try call(path, "the state record can't be written") { () throws(Errno) in
            try writeState(
                before?.ofCopyInUse() ?? .ofUnknownCopy, descriptor, keys, storage)
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
    /// Checks that `volumeKey` is that of the volume in `backingPath`, which is not mounted, and
    /// says what its state record tells. Changes nothing.
    ///
    /// Throws `VolumeOpenError`: `damaged` where the root's directory record is missing or of
    /// another key.
    public static func examineCopy(
        backingPath: String, volumeKey: borrowing SecretBytes
    ) throws(VolumeOpenError) -> CopyStanding {
        try VolumeRoot.examineCopy(
            backingPath, volumeKey: volumeKey, storage: PosixStorage())
    }

    /// Takes the volume in `backingPath`, which is not mounted, for a copy that was made while it
    /// was in use: whatever a copy can have half of is accepted, with an event, until every file
    /// was read (docs/format.md §8). Durable when it returns; can be repeated.
    public static func acceptCopyInUse(
        backingPath: String, volumeKey: borrowing SecretBytes
    ) throws(VolumeOpenError) {
        try VolumeRoot.acceptCopyInUse(
            backingPath, volumeKey: volumeKey, storage: PosixStorage())
    }
}
