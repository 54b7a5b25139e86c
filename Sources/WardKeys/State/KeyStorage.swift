import Glibc
import WardSystem

/// The file operations for stored keys. All durable changes go through here, so that a test can cut
/// the power after any of them.
protocol KeyStorage: Sendable {
    /// Reads the whole file; of a longer file, `limit` + 1 bytes. `ENOENT` where there is no file.
    func read(_ path: String, limit: Int) throws(Errno) -> SecretBytes
    /// Makes the file with these bytes; a file of that name is removed first. Mode 0600, or 0644
    /// where `isPublic`.
    func write(_ path: String, _ bytes: UnsafeRawBufferPointer, isPublic: Bool) throws(Errno)
    /// fsync(2) of a file or a directory.
    func sync(_ path: String) throws(Errno)
    func rename(_ path: String, to target: String) throws(Errno)
    /// Removes the name; a missing file is no error.
    func remove(_ path: String) throws(Errno)
    /// A descriptor to wipe the file after its name is gone; nil where there is no file.
    func openForWiping(_ path: String) throws(Errno) -> Int32?
    /// Overwrites the file's bytes with zeros, durably, and closes. Copies in a flash translation
    /// layer or a copy-on-write file system are out of reach.
    func wipe(_ descriptor: Int32) throws(Errno)
    /// Closes a descriptor that was opened for wiping, without wiping.
    func close(_ descriptor: Int32)
    /// Waits for the exclusive lock of this device's files, flock(2); nil where there is no file to
    /// lock.
    func lock(_ path: String) throws(Errno) -> Int32?
    func unlock(_ descriptor: Int32)
    /// Calls mkdir(2) with missing parents, mode 0700; an existing directory is no error.
    func makeDirectory(_ path: String) throws(Errno)
}

extension KeyStorage {
    /// Replaces the file at `path` atomically and durably: write new, fsync, rename, fsync
    /// directory.
    ///
    /// `new` is the temporary name, by default `path` and `.new`; a file of that name is lost.
    func replace(
        _ path: String, with bytes: UnsafeRawBufferPointer, isPublic: Bool, new: String? = nil
    ) throws(Errno) {
        let new = new ?? path + ".new"
        try write(new, bytes, isPublic: isPublic)
        try sync(new)
        try rename(new, to: path)
        try sync(Paths.parent(of: path))
    }

    func replace(
        _ path: String, with bytes: [UInt8], isPublic: Bool, new: String? = nil
    ) throws(Errno) {
        // Array's own closure can't throw a typed error.
        let failure: Errno? = bytes.withUnsafeBytes { bytes in
            do throws(Errno) {
                try replace(path, with: bytes, isPublic: isPublic, new: new)
                return nil
            } catch {
                return error
            }
        }
        if let failure { throw failure }
    }

    /// Writes a file and syncs it; the caller makes its name durable.
    func writeDurably(_ path: String, _ bytes: [UInt8], isPublic: Bool) throws(Errno) {
        let failure: Errno? = bytes.withUnsafeBytes { bytes in
            do throws(Errno) {
                try write(path, bytes, isPublic: isPublic)
                try sync(path)
                return nil
            } catch {
                return error
            }
        }
        if let failure { throw failure }
    }

    /// Replaces a file that holds secrets. Wipes the old file after the new one is durable in its
    /// place.
    func replaceSecret(_ path: String, with secret: borrowing SecretBytes) throws(Errno) {
        let old = try openForWiping(path)
        do throws(Errno) {
            try secret.withUnsafeBytes { (bytes) throws(Errno) in
                try replace(path, with: bytes, isPublic: false)
            }
        } catch {
            if let old { close(old) }
            throw error
        }
        if let old { try wipe(old) }
    }

    /// Wipes and removes a file that holds secrets, durably; a missing file is no error.
    func destroySecret(_ path: String) throws(Errno) {
        guard let file = try openForWiping(path) else { return }
        try wipe(file)
        try remove(path)
        try sync(Paths.parent(of: path))
    }

    /// Reads a file that is not secret into an array.
    func readBytes(_ path: String, limit: Int) throws(Errno) -> [UInt8] {
        try read(path, limit: limit).withUnsafeBytes { [UInt8]($0) }
    }
}

extension KeyStorage {
    /// Reads the whole file; nil where there is none. `what` names the content in the error.
    func readIfThere(
        _ path: String, limit: Int, _ what: String
    ) throws(KeybagError) -> [UInt8]? {
        do throws(Errno) {
            return try readBytes(path, limit: limit)
        } catch {
            if error == .noSuchFileOrDirectory { return nil }
            throw .system(error, path, "can't read \(what)")
        }
    }
}
