import CWardLinux
import Glibc
import WardConsole
import WardControl
import WardFormat
import WardSystem

/// Reads and writes the record of a trusted host.
enum HostRecordFile {
    static let what = "cannot write the record of a host"
    /// `RENAME_NOREPLACE` of linux/fs.h, which Swift does not import.
    private static let noReplace: UInt32 = 1

    /// Makes the record of a new host of this volume.
    static func make(_ status: VolumeStatus) throws(CommandFailure) -> HostRecord {
        SecretInput.leaveNoDump()
        guard let uuid = uuid(status) else {
            throw CommandFailure(what, why: "the daemon names no volume", status: .software)
        }
        do throws(Errno) {
            return try HostRecord(volumeUUID: uuid)
        } catch {
            throw CommandFailure(what, errno: error)
        }
    }

    private static func uuid(_ status: VolumeStatus) -> [UInt8]? {
        let bytes = HexSecret.bytes(status.uuid.filter { $0 != "-" })
        return bytes?.count == 16 ? bytes : nil
    }

    static func writeToOutput(_ record: borrowing HostRecord) throws(CommandFailure) {
        do throws(Errno) {
            try record.serialized().withUnsafeBytes { bytes throws(Errno) in
                try Syscall.writeAll(1, bytes.baseAddress!, bytes.count)
            }
        } catch {
            throw CommandFailure(what, "to stdout", errno: error, status: .inputOutput)
        }
    }

    /// A file that gets its name only once the host is trusted. Otherwise no file is left.
    final class Pending {
        let path: String
        private let temporary: String
        private var isThere = false

        init(_ wanted: String, _ status: VolumeStatus) throws(CommandFailure) {
            do throws(Errno) {
                path = try Path.realParent(wanted)
                if access(path, F_OK) == 0 { throw Errno.fileExists }
            } catch {
                throw CommandFailure(
                    what, wanted, errno: error, hint: "name a new file in a directory that exists",
                    status: .cannotCreate)
            }
            temporary = "\(path).\(HexSecret.text(SystemRandom.bytes(8))).new"
            for place in [status.mountpoint, status.volume] where PathBytes.isInside(path, place) {
                throw CommandFailure(
                    what, wanted, why: "it would lie in the volume that it is for",
                    hint: "name a file elsewhere, on the host if you can", status: .usage)
            }
        }

        /// Writes the record durably under a temporary name.
        func write(_ record: borrowing HostRecord) throws(CommandFailure) {
            do throws(Errno) {
                let file = try OwnedDescriptor(
                    opening: temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
                isThere = true
                try record.serialized().withUnsafeBytes { bytes throws(Errno) in
                    try Syscall.writeAll(file.rawValue, bytes.baseAddress!, bytes.count)
                }
                try Syscall.fsync(file.rawValue)
                try file.close()
            } catch {
                discard()
                throw CommandFailure(what, path, errno: error, status: .cannotCreate)
            }
        }

        /// Gives the file its final name, durably. Never replaces another file.
        func finish() throws(CommandFailure) {
            do throws(Errno) {
                do throws(Errno) {
                    try Syscall.renameat(
                        AT_FDCWD, temporary, AT_FDCWD, path, flags: noReplace)
                } catch {
                    // This file system has no RENAME_NOREPLACE. A second name is made, which fails
                    // where the name is taken, and the first is removed.
                    guard error == .invalidArgument else { throw error }
                    try Syscall.linkat(AT_FDCWD, temporary, AT_FDCWD, path)
                    try Syscall.unlinkat(AT_FDCWD, temporary)
                }
                isThere = false
                let directory = try OwnedDescriptor(
                    opening: Path.parent(path), O_RDONLY | O_DIRECTORY)
                try Syscall.fsync(directory.rawValue)
            } catch {
                throw CommandFailure(what, path, errno: error, status: .cannotCreate)
            }
        }

        /// Removes the file: the host is not trusted.
        func discard() {
            if isThere { unlink(temporary) }
            isThere = false
        }

        deinit { discard() }
    }

    /// Reads a record from a file or a descriptor. Takes exactly the record's length, so that the
    /// rest stays for the next reader.
    static func read(
        file: String?, descriptor: Int32?, for status: VolumeStatus
    ) throws(CommandFailure) -> HostRecord {
        SecretInput.leaveNoDump()
        let what = "cannot read the trust file"
        let subject = file ?? "descriptor \(descriptor ?? 0)"
        let bytes: SecretBytes
        do throws(Errno) {
            if let file {
                let opened = try OwnedDescriptor(opening: file, O_RDONLY | O_NOCTTY | O_NONBLOCK)
                guard try Syscall.fstat(opened.rawValue).st_mode & S_IFMT != S_IFDIR else {
                    throw Errno.isDirectory
                }
                // One byte more: a longer file is no record.
                bytes = try read(opened.rawValue, upTo: HostRecord.bytes + 1)
            } else {
                bytes = try read(descriptor ?? 0, upTo: HostRecord.bytes)
            }
        } catch {
            throw CommandFailure(what, subject, errno: error)
        }
        let record: HostRecord
        do throws(FormatError) {
            record = try HostRecord(reading: bytes)
        } catch {
            throw CommandFailure(
                what, subject, why: "\(error)",
                hint: error.code == .newerVersion
                    ? "install the version of ward that made it, or a later one"
                    : "bring it here again, or trust the host again: ward trust add",
                status: .badData)
        }
        guard record.volumeUUID == uuid(status) else {
            throw CommandFailure(
                what, subject, why: "it is for another volume than \(status.volume)",
                hint: "name the mount point of the volume that it is for (ward status)",
                status: .badData)
        }
        return record
    }

    private static func read(_ descriptor: Int32, upTo limit: Int) throws(Errno) -> SecretBytes {
        var secret = try SecretBytes(zeroed: limit)
        var count = 0
        try secret.withUnsafeMutableBytes { buffer throws(Errno) in
            while count < buffer.count {
                let got = try Syscall.read(
                    descriptor, buffer.baseAddress! + count, buffer.count - count)
                if got == 0 { break }
                count += got
            }
        }
        secret.shorten(to: count)
        return secret
    }
}
