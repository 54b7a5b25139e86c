import CWardLinux
import Glibc
import WardSystem
import WardVolume

// Making, moving, linking and listing names.
extension SimulatedDisk {
    func make(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ name: StaticString = #function,
        _ body: (inout DiskImage) -> UInt64
    ) throws(Errno) {
        try change(name) { (state) throws(Errno) -> Void in
            let (parent, entry) = try vacant(directory, path, state)
            let identity = body(&state.image)
            let isDirectory = state.image.inodes[identity]!.mode & S_IFMT == S_IFDIR
            state.image.change([
                DiskImage.EntryChange(directory: parent, name: entry, new: identity)
            ])
            // A directory's link count includes ".".
            if isDirectory { state.image.inodes[identity]!.links = 2 }
        }
    }

    package func mkdirat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t
    ) throws(Errno) {
        try make(directory, path) { $0.makeInode(S_IFDIR | mode & 0o7777) }
    }

    package func mknodat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ mode: mode_t, _ device: dev_t
    ) throws(Errno) {
        try make(directory, path) { $0.makeInode(mode, device: device) }
    }

    package func symlinkat(
        target: UnsafePointer<CChar>, _ directory: Int32, _ path: UnsafePointer<CChar>
    ) throws(Errno) {
        let target = [UInt8](UnsafeRawBufferPointer(start: target, count: strlen(target)))
        guard !target.isEmpty else { throw .noSuchFileOrDirectory }
        guard target.count < 4096 else { throw .fileNameTooLong }
        let isHidden = path[0] == CChar(UInt8(ascii: "."))
        try make(directory, path) {
            $0.makeInode(S_IFLNK | 0o777, target: target, isHidden: isHidden)
        }
    }

    package func unlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ flags: Int32
    ) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let parent = try self.directory(directory, state)
            let inode = try existing(directory, path, state)
            let isDirectory = inode.mode & S_IFMT == S_IFDIR
            if flags & AT_REMOVEDIR != 0 {
                guard isDirectory else { throw .notDirectory }
                guard inode.entries.isEmpty else { throw .directoryNotEmpty }
            } else if isDirectory {
                throw .isDirectory
            }
            let name = try name(path)
            state.image.change([
                DiskImage.EntryChange(directory: parent.identity, name: name, new: nil)
            ])
            if isDirectory { state.image.inodes[inode.identity]!.links = 0 }
            SimulatedDisk.forgetIfUnused(inode.identity, &state)
        }
    }

    package func renameat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>, flags: UInt32
    ) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let from = try directory(oldDirectory, state)
            let to = try directory(newDirectory, state)
            guard to.links > 0 else { throw .noSuchFileOrDirectory }
            let moved = try existing(oldDirectory, oldPath, state)
            let replaced = try find(newDirectory, newPath, state).map {
                state.image.inodes[$0]!
            }
            let exchanges = flags & 2 != 0
            if flags & 1 != 0, replaced != nil { throw .fileExists }
            if exchanges, replaced == nil { throw .noSuchFileOrDirectory }
            if replaced?.identity == moved.identity { return }
            let isDirectory = moved.mode & S_IFMT == S_IFDIR
            if isDirectory, isInside(to.identity, moved.identity, state) {
                throw .invalidArgument
            }
            let replacedIsDirectory = replaced.map { $0.mode & S_IFMT == S_IFDIR } ?? false
            if let replaced, !exchanges {
                if isDirectory, !replacedIsDirectory { throw .notDirectory }
                if !isDirectory, replacedIsDirectory { throw .isDirectory }
                if replacedIsDirectory, !replaced.entries.isEmpty { throw .directoryNotEmpty }
            }
            if exchanges, replacedIsDirectory,
                isInside(from.identity, replaced!.identity, state)
            {
                throw .invalidArgument
            }
            let left =
                if exchanges {
                    replaced?.identity
                } else if flags & 4 != 0 {
                    // RENAME_WHITEOUT leaves a character device in the old place.
                    state.image.makeInode(S_IFCHR, device: 0)
                } else {
                    UInt64?.none
                }
            state.image.change(
                [
                    DiskImage.EntryChange(
                        directory: from.identity, name: try name(oldPath), new: left),
                    DiskImage.EntryChange(
                        directory: to.identity, name: try name(newPath), new: moved.identity),
                ], movesDirectory: isDirectory || replacedIsDirectory)
            if let replaced, !exchanges {
                if replacedIsDirectory { state.image.inodes[replaced.identity]!.links = 0 }
                SimulatedDisk.forgetIfUnused(replaced.identity, &state)
            }
        }
    }

    func isInside(_ inner: UInt64, _ outer: UInt64, _ state: borrowing State) -> Bool {
        var current = inner
        while current != DiskImage.rootIdentity {
            if current == outer { return true }
            guard let inode = state.image.inodes[current], inode.parent != 0 else { return false }
            current = inode.parent
        }
        return outer == DiskImage.rootIdentity
    }

    package func linkat(
        _ oldDirectory: Int32, _ oldPath: UnsafePointer<CChar>, _ newDirectory: Int32,
        _ newPath: UnsafePointer<CChar>
    ) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let inode = try existing(oldDirectory, oldPath, state)
            try link(inode, newDirectory, newPath, &state)
        }
    }

    package func linkDescriptor(
        _ descriptor: Int32, _ newDirectory: Int32, _ newPath: UnsafePointer<CChar>
    ) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let inode = try SimulatedDisk.inode(descriptor, state)
            try link(inode, newDirectory, newPath, &state)
        }
    }

    func link(
        _ inode: DiskImage.Inode, _ newDirectory: Int32, _ newPath: UnsafePointer<CChar>,
        _ state: inout State
    ) throws(Errno) {
        if inode.mode & S_IFMT == S_IFDIR { throw .notPermitted }
        let (parent, name) = try vacant(newDirectory, newPath, state)
        state.image.change([
            DiskImage.EntryChange(directory: parent, name: name, new: inode.identity)
        ])
    }

    package func readlinkat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawPointer,
        _ capacity: Int
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            let inode = try existing(directory, path, state)
            guard inode.mode & S_IFMT == S_IFLNK else { throw .invalidArgument }
            let count = min(capacity, inode.target.count)
            inode.target.withUnsafeBytes {
                buffer.copyMemory(from: $0.baseAddress!, byteCount: count)
            }
            return count
        }
    }

    package func list(_ directory: Int32, _ body: (DirectoryEntry) -> Void) throws(Errno) {
        let entries: [DirectoryEntry] = try look { (state) throws(Errno) -> [DirectoryEntry] in
            let inode = try self.directory(directory, state)
            return inode.entries.sorted { $0.value < $1.value }.map {
                let child = state.image.inodes[$0.value]!
                return DirectoryEntry(
                    name: $0.key, inode: child.number, type: UInt8((child.mode & S_IFMT) >> 12))
            }
        }
        for entry in entries { body(entry) }
    }
}
