import Glibc
import WardFormat
import WardSystem

/// The root's own files of a volume that is not mounted, for a check: the directory record and the
/// state record.
///
/// The caller holds the volume's lock. The methods throw `VolumeOpenError` where a file can't be
/// read or written, or belongs to a later version.
package struct RootRepair: ~Copyable {
    private let path: String
    private let keys: VolumeKeys
    private let storage: any Storage
    private let descriptor: Int32

    /// Opens the backing directory, and derives the keys of its records from the volume key.
    package init(
        backingPath: String, volumeKey: borrowing SecretBytes, _ storage: any Storage
    ) throws(VolumeOpenError) {
        let opened = try VolumeRoot.call(backingPath, "can't be opened") { () throws(Errno) in
            try storage.openat(AT_FDCWD, backingPath, O_RDONLY | O_DIRECTORY, mode: 0)
        }
        let keys: VolumeKeys
        do throws(VolumeOpenError) {
            keys = try RootRepair.keys(opened, backingPath, volumeKey, storage)
        } catch {
            storage.close(opened)
            throw error
        }
        path = backingPath
        self.keys = keys
        self.storage = storage
        descriptor = opened
    }

    deinit { storage.close(descriptor) }

    /// Returns the keys in the format under which one of the root's two records authenticates.
    /// Without one it is format 1. If then a record claims to be of format 2, throws `damaged`: a
    /// repair in the wrong format would take all files for damaged.
    ///
    /// Without a sound state record it is not known whether a volume of format 2 still has
    /// structures of format 1. Then they are read, until an upgrade ends.
    private static func keys(
        _ descriptor: Int32, _ path: String, _ volumeKey: borrowing SecretBytes,
        _ storage: any Storage
    ) throws(VolumeOpenError) -> VolumeKeys {
        let upgrading = try VolumeRoot.derive(volumeKey, .upgrading, path)
        if hasState(descriptor, path, upgrading, storage) { return upgrading }
        let keys = try VolumeRoot.derive(volumeKey, FormatStanding(.version1), path)
        if isKnown(descriptor, path, keys, storage) { return keys }
        let later = try VolumeRoot.derive(volumeKey, FormatStanding(.version2), path)
        if hasState(descriptor, path, later, storage) { return later }
        if isKnown(descriptor, path, later, storage) { return upgrading }
        guard claimedFormat(descriptor, storage) == .version1 else {
            throw VolumeOpenError(
                .damaged, path: path + "/" + DirectoryRecord.linkName,
                "is damaged, and so is \(VolumeStateRecord.fileName): neither tells the format")
        }
        return keys
    }

    private static func isKnown(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) -> Bool {
        (try? VolumeRoot.readRecord(descriptor, path, keys, storage)) != nil
            || hasState(descriptor, path, keys, storage)
    }

    private static func hasState(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) -> Bool {
        (try? VolumeRoot.readState(descriptor, path, keys, storage)) != nil
    }

    /// The later one of the formats that the records name, unauthenticated.
    private static func claimedFormat(
        _ descriptor: Int32, _ storage: any Storage
    ) -> VolumeFormat {
        let file = try? storage.openat(
            descriptor, VolumeStateRecord.fileName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        var bytes = [UInt8](repeating: 0, count: VolumeStateRecord.headBytes)
        if let file {
            _ = bytes.withUnsafeMutableBytes {
                try? storage.pread(file, $0.baseAddress!, $0.count, at: 0)
            }
            storage.close(file)
        }
        return max(VolumeRoot.format(descriptor, storage), VolumeStateRecord.format(of: bytes))
    }

    /// Returns the fault of the root's directory record; nil where it is sound.
    package func recordProblem() throws(VolumeOpenError) -> String? {
        do throws(VolumeOpenError) {
            let record = try VolumeRoot.readRecord(descriptor, path, keys, storage)
            return record.directoryID == keys.rootID
                ? nil : "the root's directory record is another directory's"
        } catch {
            switch error.code {
            case .damaged, .system(.invalidArgument):
                return "the root's directory record is missing or damaged"
            default: throw error
            }
        }
    }

    /// Makes the directory record again. Its ID follows from the volume key.
    package func remakeRecord(_ protectionClass: ProtectionClass) throws(VolumeOpenError) {
        try VolumeRoot.call(path, "the root's record can't be written") { () throws(Errno) in
            let record = DirectoryRecord(
                directoryID: keys.rootID, protectionClass: protectionClass)
            try VolumeRoot.putRecord(record, descriptor, keys, storage)
        }
    }

    /// Returns the fault of the state record; nil where it is sound.
    package func stateProblem() throws(VolumeOpenError) -> String? {
        try VolumeRoot.stateProblem(descriptor, path, keys, storage)
    }

    /// Makes the state record again, of an unknown epoch and without a doubt.
    package func remakeState() throws(VolumeOpenError) {
        try VolumeRoot.call(path, "the state record can't be written") { () throws(Errno) in
            try VolumeRoot.writeState(
                VolumeStateRecord(
                    format: keys.format, isUpgrading: keys.readsVersion1, isInUse: false,
                    epoch: VolumeStateRecord.unknownEpoch, doubtful: []),
                descriptor, keys, storage)
        }
    }
}

extension VolumeRoot {
    /// Returns the fault of the state record; nil where it is sound. Also used on a mounted volume.
    static func stateProblem(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(VolumeOpenError) -> String? {
        do throws(VolumeOpenError) {
            _ = try readState(descriptor, path, keys, storage)
            return nil
        } catch {
            switch error.code {
            case .system(.noSuchFileOrDirectory): return "the state record is missing"
            case .damaged, .system(.tooManySymbolicLinkLevels):
                return "the state record is damaged"
            default: throw error
            }
        }
    }
}
