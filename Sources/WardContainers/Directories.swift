import CWardLinux
import Glibc
import WardSystem

/// Opens and changes directories of a mounted volume, step by step and never through a symbolic
/// link: an app may put links into its container.
enum Directories {
    private static let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW
    /// include/uapi/asm-generic/fcntl.h, `O_PATH`: names a node without opening it.
    static let pathOnly: Int32 = 0o10000000

    static func open(_ name: String, in parent: Int32) throws(Errno) -> OwnedDescriptor {
        do throws(Errno) {
            return OwnedDescriptor(adopting: try Syscall.openat(parent, name, flags))
        } catch {
            // The error of open(2) for a symbolic link.
            throw error == .tooManySymbolicLinkLevels ? .notDirectory : error
        }
    }

    /// Opens each name inside the one before; nil where one is missing.
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

    /// Opens the directory; makes it where it is missing. `mode` is before the umask.
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

    /// The names in a directory, sorted, without "." and "..". Names that are not UTF-8 are left
    /// out: no container has such a name.
    static func names(in directory: Int32) throws(Errno) -> [String] {
        try DirectoryReading.names(in: directory).compactMap {
            String(validating: $0, as: UTF8.self)
        }.sorted()
    }

    // MARK: Attributes

    /// Longest value that is read, bytes.
    private static let maximumAttributeBytes = 4096

    /// The attribute of an open file or directory; nil where it has none. The descriptor may be an
    /// `O_PATH` one.
    static func attribute(_ name: String, of node: Int32) throws(Errno) -> [UInt8]? {
        try attribute(name, at: "/proc/self/fd/\(node)")
    }

    /// The attribute of the node at `path`; follows symbolic links.
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

    /// The class that the volume says, Apple's string; nil where the node has none.
    static func protectionClass(of node: Int32) throws(Errno) -> String? {
        try attribute("user.ward.class", of: node).map { String(decoding: $0, as: UTF8.self) }
    }

    static func setProtectionClass(_ name: String, of node: Int32) throws(Errno) {
        try setAttribute("user.ward.class", Array(name.utf8), of: node)
    }

    // MARK: Removing

    /// A deeper directory is moved up to the top before it is emptied: each open level takes a
    /// descriptor.
    private static let maximumDepth = 64

    /// Removes a directory with all that is in it. Mounts inside it stay, also those of the same
    /// volume. Throws the error of the last node that could not be removed.
    static func removeTree(
        _ name: [UInt8], in parent: Int32, onlyDirectories: Bool = false
    ) throws(Errno) {
        let top = try openToEmpty(name, in: parent)
        var hasMoved: Bool
        repeat {
            hasMoved = false
            try empty(top.rawValue, top.rawValue, 1, onlyDirectories, &hasMoved)
        } while hasMoved
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.unlinkat(parent, name, AT_REMOVEDIR)
        }
    }

    /// Sets `hasMoved` after it moved a deep directory up into `top`.
    private static func empty(
        _ directory: Int32, _ top: Int32, _ depth: Int, _ onlyDirectories: Bool,
        _ hasMoved: inout Bool
    ) throws(Errno) {
        var failure: Errno?
        for name in try DirectoryReading.names(in: directory) {
            do throws(Errno) {
                let isDirectory = try NodeName(bytes: name).withCString { name throws(Errno) in
                    try Syscall.fstatat(directory, name).st_mode & S_IFMT == S_IFDIR
                }
                if isDirectory, depth >= maximumDepth {
                    // The owner needs all rights to a directory that is moved.
                    _ = try openToEmpty(name, in: directory)
                    let moved = ContainerLayout.removedPrefix + VolumeContainers.randomName()
                    try NodeName(bytes: name).withCString { name throws(Errno) in
                        try Syscall.renameat(
                            directory, name, top, moved, flags: 1 /* RENAME_NOREPLACE */)
                    }
                    hasMoved = true
                } else if isDirectory {
                    let inner = try openToEmpty(name, in: directory)
                    try empty(inner.rawValue, top, depth + 1, onlyDirectories, &hasMoved)
                    try NodeName(bytes: name).withCString { name throws(Errno) in
                        try Syscall.unlinkat(directory, name, AT_REMOVEDIR)
                    }
                } else if !onlyDirectories {
                    try NodeName(bytes: name).withCString { name throws(Errno) in
                        try Syscall.unlinkat(directory, name)
                    }
                }
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
    }

    /// Opens the directory itself: no link, and no mount point. Adds the owner's rights where they
    /// were taken away.
    private static func openToEmpty(
        _ name: [UInt8], in parent: Int32
    ) throws(Errno) -> OwnedDescriptor {
        let node = OwnedDescriptor(
            adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.openat(parent, name, pathOnly | O_DIRECTORY | O_NOFOLLOW)
            })
        // A bind mount of a part of the volume has the same device number, so mount IDs are
        // compared.
        guard try mount(of: node.rawValue) == mount(of: parent) else { throw .resourceBusy }
        let mode = try Syscall.fstat(node.rawValue).st_mode & 0o7777
        if mode & 0o700 != 0o700 {
            // Goes by the descriptor, because the name may be a link by now.
            try? Syscall.fchmodat(AT_FDCWD, "/proc/self/fd/\(node.rawValue)", mode | 0o700)
        }
        return OwnedDescriptor(adopting: try Syscall.openat(node.rawValue, ".", flags))
    }

    /// The number of the mount that a descriptor leads into: proc_pid_fdinfo(5).
    private static func mount(of node: Int32) throws(Errno) -> String {
        let name = "mnt_id:"
        let file = try OwnedDescriptor(opening: "/proc/self/fdinfo/\(node)", O_RDONLY)
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = try Syscall.read(file.rawValue, &bytes, bytes.count)
        let text = String(decoding: bytes[..<count], as: UTF8.self)
        guard let line = text.split(separator: "\n").first(where: { $0.hasPrefix(name) }) else {
            throw .notSupported
        }
        return line.dropFirst(name.count).filter { !$0.isWhitespace }
    }

    /// Removes a directory and the directories below it, where no file is in any of them.
    static func removeIfWithoutFiles(_ name: String, in parent: Int32) {
        guard holdsOnlyDirectories(Array(name.utf8), in: parent, depth: 1) else { return }
        try? removeTree(Array(name.utf8), in: parent, onlyDirectories: true)
    }

    /// A tree deeper than ward makes is a program's, and stays.
    private static func holdsOnlyDirectories(
        _ name: [UInt8], in parent: Int32, depth: Int
    ) -> Bool {
        guard depth <= maximumDepth else { return false }
        do throws(Errno) {
            let directory = OwnedDescriptor(
                adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                    try Syscall.openat(parent, name, flags)
                })
            for inner in try DirectoryReading.names(in: directory.rawValue)
            where !holdsOnlyDirectories(inner, in: directory.rawValue, depth: depth + 1) {
                return false
            }
            return true
        } catch {
            return false
        }
    }
}
