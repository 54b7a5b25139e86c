import CWardLinux
import Glibc
import WardSystem
import WardVolume

// Modes, owners, times and extended attributes.
extension SimulatedDisk {
    func changeInode(
        _ descriptor: Int32, _ change: DiskImage.Change, _ name: StaticString = #function
    ) throws(Errno) {
        try self.change(name) { (state) throws(Errno) -> Void in
            let identity = try SimulatedDisk.inode(descriptor, state).identity
            state.image.change(identity, change)
        }
    }

    package func chmod(_ descriptor: Int32, _ mode: mode_t) throws(Errno) {
        try changeInode(descriptor, .mode(mode & 0o7777))
    }

    package func chown(_ descriptor: Int32, _ uid: uid_t, _ gid: gid_t) throws(Errno) {
        try changeInode(descriptor, .owner(uid, gid))
    }

    package func setTimes(
        _ descriptor: Int32, access: timespec, modification: timespec
    ) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let inode = try SimulatedDisk.inode(descriptor, state)
            let now = state.image.now()
            func time(_ wanted: timespec, _ old: timespec) -> timespec {
                if wanted.tv_nsec == ward_utime_omit() { return old }
                return wanted.tv_nsec == ward_utime_now() ? now : wanted
            }
            state.image.change(
                inode.identity,
                .times(
                    time(access, inode.times.access), time(modification, inode.times.modification)))
        }
    }

    package func getxattr(
        _ descriptor: Int32, _ name: String, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            try SimulatedDisk.value(name, of: SimulatedDisk.inode(descriptor, state), buffer)
        }
    }

    package func getxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ name: String,
        _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            try SimulatedDisk.value(name, of: existing(directory, path, state), buffer)
        }
    }

    private static func value(
        _ name: String, of inode: DiskImage.Inode, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        guard let value = inode.attributes[name] else { throw .noData }
        return try fill(buffer, value)
    }

    /// Copies the bytes and returns their count. An empty buffer only asks for the count.
    private static func fill(
        _ buffer: UnsafeMutableRawBufferPointer, _ bytes: [UInt8]
    ) throws(Errno) -> Int {
        if buffer.isEmpty { return bytes.count }
        guard bytes.count <= buffer.count else { throw .outOfRange }
        buffer.copyBytes(from: bytes)
        return bytes.count
    }

    package func setxattr(
        _ descriptor: Int32, _ name: String, _ value: UnsafeRawBufferPointer, flags: Int32
    ) throws(Errno) {
        let bytes = [UInt8](value)
        try change { (state) throws(Errno) -> Void in
            let inode = try SimulatedDisk.inode(descriptor, state)
            if name.hasPrefix("user."), ![S_IFREG, S_IFDIR].contains(inode.mode & S_IFMT) {
                throw .notPermitted
            }
            let isThere = inode.attributes[name] != nil
            if flags & 1 != 0, isThere { throw .fileExists }  // XATTR_CREATE
            if flags & 2 != 0, !isThere { throw .noData }  // XATTR_REPLACE
            state.image.change(inode.identity, .attribute(name, bytes))
        }
    }

    package func removexattr(_ descriptor: Int32, _ name: String) throws(Errno) {
        try change { (state) throws(Errno) -> Void in
            let inode = try SimulatedDisk.inode(descriptor, state)
            guard inode.attributes[name] != nil else { throw .noData }
            state.image.change(inode.identity, .attribute(name, nil))
        }
    }

    package func listxattr(
        _ descriptor: Int32, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            try SimulatedDisk.names(of: SimulatedDisk.inode(descriptor, state), buffer)
        }
    }

    package func listxattrat(
        _ directory: Int32, _ path: UnsafePointer<CChar>, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try look { (state) throws(Errno) -> Int in
            try SimulatedDisk.names(of: existing(directory, path, state), buffer)
        }
    }

    private static func names(
        of inode: DiskImage.Inode, _ buffer: UnsafeMutableRawBufferPointer
    ) throws(Errno) -> Int {
        try fill(buffer, inode.attributes.keys.sorted().flatMap { Array($0.utf8) + [0] })
    }
}
