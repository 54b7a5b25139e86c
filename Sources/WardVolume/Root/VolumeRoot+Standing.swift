import Glibc
import WardFormat
import WardSystem

// The format that a volume's root claims, before any key is used.
extension VolumeRoot {
    /// The format that the root's directory record names. It is right where the record then
    /// authenticates under the keys of this format.
    static func format(_ descriptor: Int32, _ storage: any Storage) -> VolumeFormat {
        withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) { buffer in
            let count = try? storage.readlinkat(
                descriptor, DirectoryRecord.linkName, buffer.baseAddress!, buffer.count)
            return DirectoryRecord.format(
                ofRoot: String(decoding: buffer.prefix(count ?? 0), as: UTF8.self))
        }
    }

    /// Whether the root has a directory record that may be sound.
    private static func hasRecord(_ descriptor: Int32, _ storage: any Storage) -> Bool {
        withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) { buffer in
            let count = try? storage.readlinkat(
                descriptor, DirectoryRecord.linkName, buffer.baseAddress!, buffer.count)
            return DirectoryRecord.isRecord(
                String(decoding: buffer.prefix(count ?? 0), as: UTF8.self))
        }
    }

    /// Puts the root's directory record in place by a rename, durably.
    static func putRecord(
        _ record: DirectoryRecord, _ descriptor: Int32, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(Errno) {
        let staging = stagingPrefix + "record"
        try? storage.unlinkat(descriptor, staging, 0)
        try storage.symlinkat(
            target: record.linkTarget(
                macKey: keys.records, parentID: keys.parentID(DirectoryRecord.noParent)),
            descriptor, staging)
        try storage.renameat(descriptor, staging, descriptor, DirectoryRecord.linkName, flags: 0)
        try storage.fsync(descriptor)
    }

    /// Where the volume stands between the formats, as its root's record and its state record
    /// claim. It is right where both then authenticate under the keys of this standing.
    static func standing(_ descriptor: Int32, _ storage: any Storage) -> FormatStanding {
        let state = (try? stateBytes(descriptor, storage)) ?? []
        if VolumeStateRecord.isUpgrading(state) { return .upgrading }
        return FormatStanding(format(descriptor, storage))
    }

    /// Where the volume stands between the formats. The keybag vouches for `leastFormat`: it comes
    /// when all structures are of this format, so none of an earlier one is read.
    static func standing(
        _ descriptor: Int32, _ path: String, _ leastFormat: VolumeFormat, _ storage: any Storage
    ) throws(VolumeOpenError) -> FormatStanding {
        let found = standing(descriptor, storage)
        guard leastFormat >= .version2 else { return found }
        guard found.format >= leastFormat else {
            // The reader of the record says what is wrong with a missing or damaged one.
            guard hasRecord(descriptor, storage) else { return FormatStanding(leastFormat) }
            throw VolumeOpenError(
                .damaged, path: path,
                "its root says format \(found.format.rawValue), and its keybag format "
                    + "\(leastFormat.rawValue): the root was replaced")
        }
        return FormatStanding(found.format)
    }

    static func stateBytes(
        _ descriptor: Int32, _ storage: any Storage
    ) throws(Errno) -> [UInt8] {
        // A FIFO in the file's place must not block the daemon.
        let file = try storage.openat(
            descriptor, VolumeStateRecord.fileName, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, mode: 0)
        defer { storage.close(file) }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = try bytes.withUnsafeMutableBufferPointer { out throws(Errno) in
            try storage.pread(file, out.baseAddress!, out.count, at: 0)
        }
        return [UInt8](bytes[0..<count])
    }
}
