import Glibc
import WardSystem

/// The file operations that keys are stored with. Everything durable goes through here, so that a
/// test can end the world after any of them.
protocol KeyStorage: Sendable {
    /// The whole file, at most `limit` bytes of it and one more where it is longer. `ENOENT` where
    /// there is none.
    func read(_ path: String, limit: Int) throws(Errno) -> SecretBytes
    /// Makes the file with these bytes; an earlier one of the name is removed first. Mode 0600
    /// unless `isPublic` (0644).
    func write(_ path: String, _ bytes: UnsafeRawBufferPointer, isPublic: Bool) throws(Errno)
    /// fsync(2) of a file or a directory.
    func sync(_ path: String) throws(Errno)
    func rename(_ path: String, to target: String) throws(Errno)
    /// Removes the name; a missing one is fine.
    func remove(_ path: String) throws(Errno)
    /// A descriptor through which the file can be wiped after its name is gone; nil where there is
    /// no file.
    func openForWiping(_ path: String) throws(Errno) -> Int32?
    /// Overwrites the file's bytes with zeros, durably, and closes. What a flash translation layer
    /// or a copy-on-write file system still holds is out of reach.
    func wipe(_ descriptor: Int32) throws(Errno)
    /// Closes what was opened for wiping and is not to be wiped after all.
    func close(_ descriptor: Int32)
    /// Waits for the exclusive lock of this device's files, flock(2); nil where there is nothing to
    /// lock.
    func lock(_ path: String) throws(Errno) -> Int32?
    func unlock(_ descriptor: Int32)
    /// mkdir(2) with its missing parents, mode 0700; an existing one is fine.
    func makeDirectory(_ path: String) throws(Errno)
}

extension KeyStorage {
    /// Replaces the file at `path` atomically and durably: write new, fsync, rename, fsync
    /// directory.
    ///
    /// `new`: the name until then, by default `path` and `.new`; a file of that name is lost.
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
        // Array's own closure does not carry a typed error.
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

    /// A file with these bytes, whose name follows.
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

    /// Replaces a file that holds secrets, and wipes the one it replaces once the new one is
    /// durably in its place.
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

    /// Wipes and removes a file that holds secrets, durably; a missing one is fine.
    func destroySecret(_ path: String) throws(Errno) {
        guard let file = try openForWiping(path) else { return }
        try wipe(file)
        try remove(path)
        try sync(Paths.parent(of: path))
    }

    /// A file that is not secret, as an array.
    func readBytes(_ path: String, limit: Int) throws(Errno) -> [UInt8] {
        try read(path, limit: limit).withUnsafeBytes { [UInt8]($0) }
    }
}

extension KeyStorage {
    /// The whole file; nil where there is none. `what`: what it holds, for the error.
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
