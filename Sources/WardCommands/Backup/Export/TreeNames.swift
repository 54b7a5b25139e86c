import CWardLinux
import Glibc
import WardSystem

/// System calls for a name in an open directory. None follows a symbolic link.
enum TreeNames {
    /// `AT_EMPTY_PATH`, which Swift does not import.
    static let emptyPath: Int32 = 0x1000

    static func status(_ name: [UInt8], _ directory: Int32) throws(Errno) -> FileStatus {
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.fstatat(directory, name)
        }
    }

    static func unlink(_ name: [UInt8], _ directory: Int32) throws(Errno) {
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.unlinkat(directory, name)
        }
    }

    static func open(
        _ name: [UInt8], _ directory: Int32, _ flags: Int32
    ) throws(Errno) -> OwnedDescriptor {
        OwnedDescriptor(
            adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                try Syscall.openat(directory, name, flags | O_NOFOLLOW | O_NOCTTY)
            })
    }

    static func readLink(_ name: [UInt8], _ directory: Int32) throws(Errno) -> [UInt8] {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.readlinkat(directory, name, &buffer, buffer.count)
        }
        return Array(buffer[0..<count])
    }

    static func isEqual(_ one: timespec, _ other: timespec) -> Bool {
        one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec
    }

    /// `node` was opened with `O_PATH` and is no symbolic link.
    static func setMode(of node: borrowing OwnedDescriptor, _ mode: mode_t) throws(Errno) {
        try Syscall.fchmodat(AT_FDCWD, "/proc/self/fd/\(node.rawValue)", mode)
    }
}
