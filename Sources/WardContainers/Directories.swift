import CWardLinux
import Glibc
import WardSystem

/// Directories of a mounted volume, step by step and never through a symbolic link: what lies in a container is its app's
/// doing.
enum Directories {
    private static let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW

    static func open(_ name: String, in parent: Int32) throws(Errno) -> OwnedDescriptor {
        do throws(Errno) {
            return OwnedDescriptor(adopting: try Syscall.openat(parent, name, flags))
        } catch {
            // What open(2) says of a symbolic link.
            throw error == .tooManySymbolicLinkLevels ? .notDirectory : error
        }
    }

    /// One after another; nil where one is missing.
    static func openIfThere(
        _ names: some Sequence<String>, in root: Int32
    ) throws(Errno) -> OwnedDescriptor? {
        var here = OwnedDescriptor(adopting: try Syscall.openat(root, ".", flags))
        for name in names {
            do throws(Errno) {
                here = try open(name, in: here.rawValue)
            } catch {
                if error == .noSuchFileOrDirectory { return nil }
                throw error
            }
        }
        return here
    }

    /// Opens the directory, and makes it where it is missing. `mode`: before the umask.
    static func openOrMake(
        _ name: String, in parent: Int32, mode: mode_t
    ) throws(Errno) -> OwnedDescriptor {
        do throws(Errno) {
            try Syscall.mkdirat(parent, name, mode)
            try Syscall.fsync(parent)
        } catch {
            if error != .fileExists { throw error }
        }
        return try open(name, in: parent)
    }

    /// Sorted, without "." and ".."; names that are no UTF-8 are left out, no container has any.
    static func names(in directory: Int32) throws(Errno) -> [String] {
        try rawNames(in: directory).compactMap { String(validating: $0, as: UTF8.self) }.sorted()
    }

    static func rawNames(in directory: Int32) throws(Errno) -> [[UInt8]] {
        // fdopendir(3) takes the descriptor over.
        let own = try Syscall.openat(directory, ".", flags)
        guard let stream = fdopendir(own) else {
            let reason = Errno(rawValue: errno)
            Syscall.close(own)
            throw reason
        }
        defer { closedir(stream) }
        var names: [[UInt8]] = []
        while true {
            errno = 0
            guard let entry = readdir(stream) else {
                if errno != 0 { throw Errno(rawValue: errno) }
                return names
            }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name != [0x2E] && name != [0x2E, 0x2E] { names.append(name) }
        }
    }

    static func withName<R>(
        _ bytes: [UInt8], _ body: (UnsafePointer<CChar>) throws(Errno) -> R
    ) throws(Errno) -> R {
        let terminated = bytes.map { CChar(bitPattern: $0) } + [0]
        return try terminated.withUnsafeBufferPointer { buffer throws(Errno) in
            try body(buffer.baseAddress!)
        }
    }

    // MARK: Attributes

    /// Longest value that is read, bytes.
    private static let maximumAttributeBytes = 4096

    /// Of what a descriptor is open on, also one that only names it (`O_PATH`); nil where there is no such attribute.
    static func attribute(_ name: String, of node: Int32) throws(Errno) -> [UInt8]? {
        try attribute(name, at: "/proc/self/fd/\(node)")
    }

    /// Follows symbolic links.
    static func attribute(_ name: String, at path: String) throws(Errno) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: maximumAttributeBytes)
        do throws(Errno) {
            let count = try Syscall.check { ward_getxattr(path, name, &buffer, buffer.count) }
            return Array(buffer[..<count])
        } catch {
            if error == .noData || error == .notSupported { return nil }
            throw error
        }
    }

    static func setAttribute(_ name: String, _ value: [UInt8], of node: Int32) throws(Errno) {
        _ = try Syscall.check {
            ward_setxattr("/proc/self/fd/\(node)", name, value, value.count, 0)
        }
    }

    /// The class as the volume tells it, Apple's string; nil for what has none.
    static func protectionClass(of node: Int32) throws(Errno) -> String? {
        try attribute("user.ward.class", of: node).map { String(decoding: $0, as: UTF8.self) }
    }

    static func setProtectionClass(_ name: String, of node: Int32) throws(Errno) {
        try setAttribute("user.ward.class", Array(name.utf8), of: node)
    }

    // MARK: Removing

    /// Removes a directory with all that is in it; leaves what is mounted in it. Throws what the last thing that could not
    /// be removed met.
    static func removeTree(
        _ name: [UInt8], in parent: Int32, onlyDirectories: Bool = false
    ) throws(Errno) {
        let opened = try withName(name) { name throws(Errno) in
            // Its owner may have taken away the right to look into it.
            let status = try Syscall.fstatat(parent, name)
            if status.st_mode & 0o700 != 0o700 {
                try? Syscall.fchmodat(parent, name, status.st_mode & 0o7777 | 0o700)
            }
            return try Syscall.openat(parent, name, flags)
        }
        let directory = OwnedDescriptor(adopting: opened)
        let device = try Syscall.fstat(directory.rawValue).st_dev
        guard try Syscall.fstat(parent).st_dev == device else { throw .resourceBusy }
        var failure: Errno?
        for inner in try rawNames(in: directory.rawValue) {
            do throws(Errno) {
                let isDirectory = try withName(inner) { name throws(Errno) in
                    try Syscall.fstatat(directory.rawValue, name).st_mode & S_IFMT == S_IFDIR
                }
                if isDirectory {
                    try removeTree(
                        inner, in: directory.rawValue, onlyDirectories: onlyDirectories)
                } else if !onlyDirectories {
                    try withName(inner) { name throws(Errno) in
                        try Syscall.unlinkat(directory.rawValue, name)
                    }
                }
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
        try withName(name) { name throws(Errno) in
            try Syscall.unlinkat(parent, name, AT_REMOVEDIR)
        }
    }

    /// Removes a directory and those in it, where nothing but directories is in any of them.
    static func removeIfWithoutFiles(_ name: String, in parent: Int32) {
        guard holdsOnlyDirectories(Array(name.utf8), in: parent) else { return }
        try? removeTree(Array(name.utf8), in: parent, onlyDirectories: true)
    }

    private static func holdsOnlyDirectories(_ name: [UInt8], in parent: Int32) -> Bool {
        do throws(Errno) {
            let directory = OwnedDescriptor(
                adopting: try withName(name) { name throws(Errno) in
                    try Syscall.openat(parent, name, flags)
                })
            for inner in try rawNames(in: directory.rawValue)
            where !holdsOnlyDirectories(inner, in: directory.rawValue) { return false }
            return true
        } catch {
            return false
        }
    }
}
