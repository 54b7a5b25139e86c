import Glibc
import WardCrypto
import WardFormat
import WardKeys
import WardSystem

/// Opens and makes the root of a volume: its directory record and its state record.
enum VolumeRoot {
    struct Opened: ~Copyable {
        var keys: VolumeKeys
        var descriptor: Int32
        var keptDescriptor: Int32
        var status: FileStatus
        var record: DirectoryRecord
        var epoch: UInt32
        var doubtful: [ClosedRange<UInt32>]
        var wasUnclean: Bool
    }

    static func open(
        _ path: String, volumeKey: borrowing SecretBytes, storage: any Storage, readOnly: Bool,
        isCopy: Bool = false, leastFormat: VolumeFormat = .version1
    ) throws(VolumeOpenError) -> Opened {
        let descriptor = try call(path, "can't be opened") { () throws(Errno) in
            try storage.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, mode: 0)
        }
        var keep = false
        defer { if !keep { storage.close(descriptor) } }
        let kept = try call(path, "can't be opened") { () throws(Errno) in
            try storage.openat(descriptor, ".", O_RDONLY | O_DIRECTORY, mode: 0)
        }
        defer { if !keep { storage.close(kept) } }
        let status = try call(path, "can't be examined") { () throws(Errno) in
            try storage.fstat(descriptor)
        }
        let keys = try derive(
            volumeKey, try standing(descriptor, path, leastFormat, storage), path)
        let record = try readRecord(descriptor, path, keys, storage)
        guard record.directoryID == keys.rootID else {
            throw VolumeOpenError(
                .damaged, path: path + "/" + DirectoryRecord.linkName,
                "is the record of another directory, not of the root")
        }
        let state = try readState(descriptor, path, keys, storage)
        let begun = state.isInUse && isCopy ? state.ofCopyInUse() : state
        var doubtful = begun.doubtful
        if begun.isInUse { doubtful.append(begun.epoch...begun.epoch + 1) }
        guard let epoch = readOnly ? begun.nextEpoch ?? .max : begun.nextEpoch else {
            throw VolumeOpenError(
                .damaged, path: path + "/" + VolumeStateRecord.fileName,
                "its numbers are used up (epoch \(state.epoch)): the volume can only be read")
        }
        if !readOnly {
            try call(path, "the state record can't be written") { () throws(Errno) in
                // Unsynced data of the last mount goes to the disk first, because doubts are judged
                // by what is on the disk.
                if state.isInUse { try storage.syncfs(descriptor) }
                try writeState(
                    VolumeStateRecord(
                        format: keys.format, isUpgrading: keys.readsVersion1, isInUse: true,
                        epoch: epoch, doubtful: doubtful),
                    descriptor, keys, storage)
                // A power cut may have come into the beginning of an upgrade.
                if keys.readsVersion1, format(descriptor, storage) == .version1 {
                    try putRecord(record, descriptor, keys, storage)
                }
            }
        }
        keep = true
        return Opened(
            keys: keys, descriptor: descriptor, keptDescriptor: kept, status: status,
            record: record, epoch: epoch, doubtful: doubtful, wasUnclean: state.isInUse)
    }

    static func create(
        _ path: String, volumeKey: borrowing SecretBytes, format: VolumeFormat,
        defaultClass: ProtectionClass, sealedBy keyring: ClassKeyring?, storage: any Storage
    ) throws(VolumeOpenError) {
        let keys = try derive(volumeKey, FormatStanding(format), path)
        try call(path, "the root can't be written") { () throws(Errno) in
            let descriptor = try storage.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, mode: 0)
            defer { storage.close(descriptor) }
            try writeFile("README", readme, descriptor, storage)
            var record = DirectoryRecord(directoryID: keys.rootID, protectionClass: defaultClass)
            if let keyring {
                record = ClassSeals(keyring, format).sealed(
                    record, parentID: DirectoryRecord.noParent)
            }
            try storage.symlinkat(
                target: record.linkTarget(
                    macKey: keys.records, parentID: keys.parentID(DirectoryRecord.noParent)),
                descriptor, DirectoryRecord.linkName)
            try writeState(
                VolumeStateRecord(format: format, isInUse: false, epoch: 0, doubtful: []),
                descriptor, keys, storage)
            try storage.fsync(descriptor)
        }
    }

    /// Whether a directory without a keybag holds nothing but remains of an interrupted `create`,
    /// or of the writing of the keybag after it. A README must be ward's, whole or in part.
    static func isUnfinished(_ descriptor: Int32, _ names: [[UInt8]]) -> Bool {
        let readmeName = "README"
        let ours = [
            readmeName, stagingPrefix + readmeName, DirectoryRecord.linkName,
            VolumeStateRecord.fileName, stagingPrefix + VolumeStateRecord.fileName,
            Keybag.fileName + ".new", VolumeHold.fileName,
        ].map { Array($0.utf8) }
        guard names.allSatisfy({ ours.contains($0) }) else { return false }
        return [readmeName, stagingPrefix + readmeName].allSatisfy { name in
            guard names.contains(Array(name.utf8)) else { return true }
            let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK
            guard let opened = try? Syscall.openat(descriptor, name, flags) else { return false }
            let file = OwnedDescriptor(adopting: opened)
            var bytes = [UInt8](repeating: 0, count: readme.count + 1)
            let count = bytes.withUnsafeMutableBytes {
                (try? Syscall.pread(file.rawValue, $0.baseAddress!, $0.count, at: 0)) ?? -1
            }
            return count >= 0 && readme.starts(with: bytes.prefix(count))
                && (name != readmeName || count == readme.count)
        }
    }

    /// Prefix of the root's own files until they are complete. The names are always the same: a
    /// later write replaces what a power cut left, and no listing removes a file that is being
    /// written.
    static let stagingPrefix = ".ward-new-"

    /// Writes a new file, syncs it, renames it and syncs the directory.
    static func writeState(
        _ record: VolumeStateRecord, _ descriptor: Int32, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(Errno) {
        try writeFile(
            VolumeStateRecord.fileName, record.serialized(macKey: keys.state), descriptor, storage)
    }

    static func writeFile(
        _ name: String, _ bytes: [UInt8], _ directory: Int32, _ storage: any Storage
    ) throws(Errno) {
        let staging = stagingPrefix + name
        let file = try makeFile(staging, directory, storage)
        do throws(Errno) {
            try bytes.withUnsafeBufferPointer { source throws(Errno) in
                try storage.pwrite(file, source.baseAddress!, source.count, at: 0)
            }
            try storage.fsync(file)
        } catch {
            storage.close(file)
            throw error
        }
        storage.close(file)
        try storage.renameat(directory, staging, directory, name, flags: 0)
        try storage.fsync(directory)
    }

    /// Makes a new file. A leftover of a power cut with that name is removed. A foreign file there
    /// (a FIFO, a second name of another file) is never written to.
    private static func makeFile(
        _ name: String, _ directory: Int32, _ storage: any Storage
    ) throws(Errno) -> Int32 {
        let flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW
        do throws(Errno) {
            return try storage.openat(directory, name, flags, mode: 0o600)
        } catch .fileExists {
            try storage.unlinkat(directory, name, 0)
            return try storage.openat(directory, name, flags, mode: 0o600)
        }
    }

    static func readRecord(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(VolumeOpenError) -> DirectoryRecord {
        let place = path + "/" + DirectoryRecord.linkName
        var target = [UInt8](repeating: 0, count: 256)
        let count: Int
        do throws(Errno) {
            count = try target.withUnsafeMutableBufferPointer { out throws(Errno) in
                try storage.readlinkat(
                    descriptor, DirectoryRecord.linkName, out.baseAddress!, out.count)
            }
        } catch .noSuchFileOrDirectory {
            throw VolumeOpenError(.damaged, path: place, "the root's directory record is missing")
        } catch {
            throw VolumeOpenError(.system(error), path: place, "can't be read: \(error)")
        }
        do throws(FormatError) {
            return try keys.directoryRecord(
                String(decoding: target[0..<count], as: UTF8.self),
                parentID: DirectoryRecord.noParent)
        } catch {
            throw VolumeOpenError(openCode(error), path: place, error.description)
        }
    }

    static func readState(
        _ descriptor: Int32, _ path: String, _ keys: VolumeKeys, _ storage: any Storage
    ) throws(VolumeOpenError) -> VolumeStateRecord {
        let place = path + "/" + VolumeStateRecord.fileName
        let bytes = try call(place, "can't be read") { () throws(Errno) in
            try stateBytes(descriptor, storage)
        }
        do throws(FormatError) {
            let record = try VolumeStateRecord(reading: bytes, macKey: keys.state)
            // A keybag of format 2 ends an upgrade whose last state record a power cut took.
            guard record.format == keys.format, record.isUpgrading || !keys.readsVersion1 else {
                throw FormatError(.malformed, "state record: of another version than the root")
            }
            return record
        } catch {
            throw VolumeOpenError(openCode(error), path: place, error.description)
        }
    }

    private static func openCode(_ error: FormatError) -> VolumeOpenError.Code {
        error.code == .newerVersion ? .newerVersion : .damaged
    }

    static func derive(
        _ volumeKey: borrowing SecretBytes, _ standing: FormatStanding, _ path: String
    ) throws(VolumeOpenError) -> VolumeKeys {
        do throws(CryptoError) {
            return try VolumeKeys(
                volumeKey: volumeKey, format: standing.format, isUpgrading: standing.isUpgrading)
        } catch {
            throw VolumeOpenError(
                .system(.noMemory), path: path,
                "no memory could be locked for keys (ulimit -l): \(error)")
        }
    }

    @discardableResult
    static func call<R>(
        _ path: String, _ what: String, _ body: () throws(Errno) -> R
    ) throws(VolumeOpenError) -> R {
        do throws(Errno) {
            return try body()
        } catch {
            throw VolumeOpenError(.system(error), path: path, "\(what): \(error)")
        }
    }

    private static let readme = Array(
        """
        This directory is a ward volume: encrypted files with a protection class each.

        Its names and contents are ciphertext. To use it:

            ward mount THIS-DIRECTORY MOUNTPOINT
            ward unlock MOUNTPOINT

        That works on the device it was made on, which keeps a device key and an effaceable
        key for it (by default in ~/.local/state/ward/), and anywhere with a recovery kit:

            ward adopt THIS-DIRECTORY --recovery-kit FILE

        Without either nobody can read it, ward's authors included.

        You may copy the whole directory with any tool, in any state, as a backup. Do not
        change, rename or add anything inside: ward will refuse what was changed.
        The format is described in docs/format.md of the project.

        """.utf8)
}

extension Volume {
    /// Whether an open directory without a volume holds nothing but the remains of an interrupted
    /// creation.
    public static func isUnfinishedRoot(_ descriptor: Int32, _ names: [[UInt8]]) -> Bool {
        VolumeRoot.isUnfinished(descriptor, names)
    }

    /// The format of the volume in a backing directory, as its root's record and its state record
    /// name it. Nothing is authenticated: records that do not fit are refused later.
    public static func format(ofBackingPath path: String) -> FormatStanding {
        guard let root = try? OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY) else {
            return FormatStanding(.version1)
        }
        return VolumeRoot.standing(root.rawValue, PosixStorage())
    }

    /// Makes the root of a new volume in the existing directory `backingPath`: directory record
    /// with `defaultClass`, state record, README. The caller makes the keybag. `keyring`: has class
    /// C's key, by which the root's record of format 2 gets its seal.
    public static func create(
        backingPath: String, parameters: VolumeParameters, volumeKey: borrowing SecretBytes,
        format: VolumeFormat = .ofNewVolumes, defaultClass: ProtectionClass,
        sealedBy keyring: ClassKeyring? = nil, storage: any Storage = PosixStorage()
    ) throws(VolumeOpenError) {
        try VolumeRoot.create(
            backingPath, volumeKey: volumeKey, format: format, defaultClass: defaultClass,
            sealedBy: keyring, storage: storage)
    }
}
