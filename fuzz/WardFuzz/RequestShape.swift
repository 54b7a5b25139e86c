import CWardLinux

/// The parts of a request of one opcode.
struct Shape {
    enum Subject: Equatable {
        case anything, directory, file, link, fileHandle, directoryHandle
        /// A node, and its handle at offset 8 where bit `flag` of the body is set.
        case anythingOrHandle(flag: Int)
        /// Two nodes, the second one at offset 0.
        case twoDirectories, nodeAndDirectory
    }

    enum Names: Equatable {
        case none
        /// That many names, each with a zero byte at its end.
        case count(Int)
        /// That many names, then data. The field at `countOffset` says how many bytes of data.
        case data(after: Int, countOffset: Int)
    }

    var about: Subject
    /// The size of the structure at the beginning, in bytes.
    var bytes = 0
    var names = Names.none

    /// Nil for opcodes that are answered without a look at the body.
    static func of(_ opcode: fuse_opcode) -> Shape? {
        func size<T>(_ type: T.Type) -> Int { MemoryLayout<T>.size }
        return switch opcode {
        case FUSE_LOOKUP, FUSE_UNLINK, FUSE_RMDIR: Shape(about: .directory, names: .count(1))
        case FUSE_FORGET, FUSE_BATCH_FORGET: Shape(about: .anything, bytes: 16)
        case FUSE_GETATTR:
            Shape(about: .anythingOrHandle(flag: 0), bytes: size(fuse_getattr_in.self))
        // FATTR_FH is bit 6.
        case FUSE_SETATTR:
            Shape(about: .anythingOrHandle(flag: 6), bytes: size(fuse_setattr_in.self))
        case FUSE_READLINK: Shape(about: .link)
        case FUSE_SYMLINK: Shape(about: .directory, names: .count(2))
        case FUSE_MKNOD:
            Shape(about: .directory, bytes: size(fuse_mknod_in.self), names: .count(1))
        case FUSE_MKDIR:
            Shape(about: .directory, bytes: size(fuse_mkdir_in.self), names: .count(1))
        case FUSE_RENAME:
            Shape(about: .twoDirectories, bytes: size(fuse_rename_in.self), names: .count(2))
        case FUSE_RENAME2:
            Shape(about: .twoDirectories, bytes: size(fuse_rename2_in.self), names: .count(2))
        case FUSE_LINK:
            Shape(about: .nodeAndDirectory, bytes: size(fuse_link_in.self), names: .count(1))
        case FUSE_OPEN: Shape(about: .file, bytes: size(fuse_open_in.self))
        case FUSE_READ: Shape(about: .fileHandle, bytes: size(fuse_read_in.self))
        case FUSE_WRITE:
            Shape(
                about: .fileHandle, bytes: size(fuse_write_in.self),
                names: .data(after: 0, countOffset: 16))
        case FUSE_RELEASE: Shape(about: .fileHandle, bytes: size(fuse_release_in.self))
        case FUSE_FSYNC: Shape(about: .fileHandle, bytes: size(fuse_fsync_in.self))
        case FUSE_SETXATTR:
            Shape(
                about: .anything, bytes: size(fuse_setxattr_in.self),
                names: .data(after: 1, countOffset: 0))
        case FUSE_GETXATTR:
            Shape(about: .anything, bytes: size(fuse_getxattr_in.self), names: .count(1))
        case FUSE_LISTXATTR: Shape(about: .anything, bytes: size(fuse_getxattr_in.self))
        case FUSE_REMOVEXATTR: Shape(about: .anything, names: .count(1))
        case FUSE_FLUSH: Shape(about: .fileHandle, bytes: size(fuse_flush_in.self))
        case FUSE_OPENDIR: Shape(about: .directory, bytes: size(fuse_open_in.self))
        case FUSE_READDIR, FUSE_READDIRPLUS:
            Shape(about: .directoryHandle, bytes: size(fuse_read_in.self))
        case FUSE_RELEASEDIR: Shape(about: .directoryHandle, bytes: size(fuse_release_in.self))
        case FUSE_FSYNCDIR: Shape(about: .directoryHandle, bytes: size(fuse_fsync_in.self))
        case FUSE_CREATE, FUSE_TMPFILE:
            Shape(about: .directory, bytes: size(fuse_create_in.self), names: .count(1))
        case FUSE_FALLOCATE: Shape(about: .fileHandle, bytes: size(fuse_fallocate_in.self))
        case FUSE_LSEEK: Shape(about: .fileHandle, bytes: size(fuse_lseek_in.self))
        default: nil
        }
    }

    /// Makes names of the bytes after the structure, as the kernel does. A name is not empty, not
    /// `.` or `..`, has no slash, and ends with a zero byte. The parser `kernel-messages` tests
    /// bodies that are no request.
    static func tidy(_ body: inout [UInt8], from start: Int, _ names: Names) {
        let wanted: Int
        switch names {
        case .none: return
        case .count(let count): wanted = count
        case .data(let after, _): wanted = after
        }
        var rest = body[start...]
        var made = Array(body[..<start])
        for _ in 0..<wanted {
            var name = Array(rest.prefix { $0 != 0 })
            rest = rest.dropFirst(name.count + 1)
            if name.isEmpty || name.allSatisfy({ $0 == UInt8(ascii: ".") }) { name.append(120) }
            made += name.map { $0 == UInt8(ascii: "/") ? UInt8(ascii: "_") : $0 } + [0]
        }
        if case .data(_, let countOffset) = names {
            made.store(UInt32(rest.count), at: countOffset)
            made += rest
        }
        body = made
    }
}
