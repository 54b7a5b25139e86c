import CWardLinux
import Glibc
import WardSystem

/// `KeyStorage` on the file system.
struct DiskKeyStorage: KeyStorage {
    func read(_ path: String, limit: Int) throws(Errno) -> SecretBytes {
        // O_NONBLOCK: a FIFO in the file's place must not hang us.
        let file = try OwnedDescriptor(opening: path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
        let status = try Syscall.fstat(file.rawValue)
        guard status.st_mode & S_IFMT == S_IFREG else { throw .invalidArgument }
        var bytes = try SecretBytes(zeroed: limit + 1)
        let count = try bytes.withUnsafeMutableBytes { (buffer) throws(Errno) in
            try Syscall.pread(file.rawValue, buffer.baseAddress!, limit + 1, at: 0)
        }
        bytes.shorten(to: count)
        return bytes
    }

    func write(_ path: String, _ bytes: UnsafeRawBufferPointer, isPublic: Bool) throws(Errno) {
        try remove(path)
        let mode: mode_t = isPublic ? 0o644 : 0o600
        let file = try OwnedDescriptor(
            opening: path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: mode)
        if let base = bytes.baseAddress {
            try Syscall.pwrite(file.rawValue, base, bytes.count, at: 0)
        }
        try file.close()
    }

    func sync(_ path: String) throws(Errno) {
        let file = try OwnedDescriptor(opening: path, O_RDONLY | O_NONBLOCK)
        try Syscall.fsync(file.rawValue)
    }

    func rename(_ path: String, to target: String) throws(Errno) {
        try Syscall.renameat(AT_FDCWD, path, AT_FDCWD, target)
    }

    func remove(_ path: String) throws(Errno) {
        do throws(Errno) {
            try Syscall.unlinkat(AT_FDCWD, path)
        } catch {
            if error != .noSuchFileOrDirectory { throw error }
        }
    }

    func openForWiping(_ path: String) throws(Errno) -> Int32? {
        do throws(Errno) {
            return try Syscall.open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK)
        } catch {
            if error == .noSuchFileOrDirectory { return nil }
            throw error
        }
    }

    func wipe(_ descriptor: Int32) throws(Errno) {
        let file = OwnedDescriptor(adopting: descriptor)
        // No file of ward's is longer. A longer file is another program's, and may have no end.
        let count = min(Int(try Syscall.fstat(file.rawValue).st_size), 1 << 20)
        let zeros = [UInt8](repeating: 0, count: min(count, 65536))
        var done = 0
        while done < count {
            let part = min(zeros.count, count - done)
            try Syscall.pwrite(file.rawValue, zeros, part, at: done)
            done += part
        }
        try Syscall.fsync(file.rawValue)
    }

    func close(_ descriptor: Int32) { Syscall.close(descriptor) }

    func lock(_ path: String) throws(Errno) -> Int32? {
        let descriptor: Int32
        do throws(Errno) {
            descriptor = try Syscall.open(path, O_RDWR | O_CREAT | O_NOFOLLOW, mode: 0o600)
        } catch {
            // There is no state directory, or it can't be written: then no process changes it
            // either.
            switch error {
            case .noSuchFileOrDirectory, .readOnlyFileSystem, .permissionDenied: return nil
            default: throw error
            }
        }
        let file = OwnedDescriptor(adopting: descriptor)
        _ = try Syscall.check { flock(file.rawValue, LOCK_EX) }
        return file.release()
    }

    func unlock(_ descriptor: Int32) { Syscall.close(descriptor) }

    func makeDirectory(_ path: String) throws(Errno) {
        do throws(Errno) {
            try Syscall.mkdirat(AT_FDCWD, path, 0o700)
            try sync(Paths.parent(of: path))
        } catch {
            if error == .fileExists { return }
            let parent = Paths.parent(of: path)
            guard error == .noSuchFileOrDirectory, parent != path else { throw error }
            try makeDirectory(parent)
            try makeDirectory(path)
        }
    }
}

/// Path arithmetic. Only functions that say so look at the file system.
enum Paths {
    static func parent(of path: String) -> String {
        var text = path.utf8[...]
        while text.count > 1, text.last == UInt8(ascii: "/") { text.removeLast() }
        return PathBytes.parent(String(Substring(text)))
    }

    /// Calls realpath(3) on the longest part of `path` that exists; the rest stays as it is.
    static func resolved(_ path: String) -> String {
        if let raw = realpath(path, nil) {
            defer { free(raw) }
            return String(cString: raw)
        }
        let parent = parent(of: path)
        guard parent != path else { return path }
        let name = PathBytes.lastComponent(path)
        let base = resolved(parent)
        return base.hasSuffix("/") ? base + name : base + "/" + name
    }

    /// Whether `path` is `directory` or lies below it.
    static func isInside(_ path: String, _ directory: String) -> Bool {
        PathBytes.isInside(resolved(path), resolved(directory))
    }
}
