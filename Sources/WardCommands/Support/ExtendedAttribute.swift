import CWardLinux
import Glibc
import WardSystem

/// Extended attributes of files by path or descriptor, xattr(7).
enum ExtendedAttribute {
    static let wardClass = ClassAttribute.name
    static let wardClassUnsynced = ClassAttribute.unsyncedName
    static let wardVolume = "user.ward.volume"
    static let wardSynced = "user.ward.synced"

    /// The value; follows symbolic links. Throws `ENODATA` where the attribute is missing.
    static func value(of name: String, path: String) throws(Errno) -> [UInt8] {
        try read { getxattr(path, name, $0, $1) }
    }

    /// The value as text.
    static func text(of name: String, path: String) throws(Errno) -> String {
        String(decoding: try value(of: name, path: path), as: UTF8.self)
    }

    static func value(of name: String, descriptor: Int32) throws(Errno) -> [UInt8] {
        try read { fgetxattr(descriptor, name, $0, $1) }
    }

    static func set(_ name: String, _ value: String, path: String) throws(Errno) {
        try set(name, Array(value.utf8), path: path)
    }

    static func set(_ name: String, _ bytes: [UInt8], path: String) throws(Errno) {
        _ = try Syscall.check { setxattr(path, name, bytes, bytes.count, 0) }
    }

    static func set(_ name: String, _ value: [UInt8], descriptor: Int32) throws(Errno) {
        _ = try Syscall.check { fsetxattr(descriptor, name, value, value.count, 0) }
    }

    static func remove(_ name: String, path: String) throws(Errno) {
        _ = try Syscall.check { removexattr(path, name) }
    }

    /// All names of an open file.
    static func names(descriptor: Int32) throws(Errno) -> [String] {
        let bytes = try read { flistxattr(descriptor, $0?.assumingMemoryBound(to: CChar.self), $1) }
        return bytes.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Each call is a request to the daemon, so short values take one call. For longer ones asks
    /// for the size first, and again where the value grew meanwhile.
    private static func read(
        _ call: (UnsafeMutableRawPointer?, Int) -> Int
    ) throws(Errno) -> [UInt8] {
        do throws(Errno) {
            return try withUnsafeTemporaryAllocation(byteCount: 256, alignment: 1) {
                buffer throws(Errno) in
                let got = try Syscall.check { call(buffer.baseAddress, buffer.count) }
                return Array(buffer[0..<got])
            }
        } catch .outOfRange {}
        while true {
            let size = try Syscall.check { call(nil, 0) }
            if size == 0 { return [] }
            var buffer = [UInt8](repeating: 0, count: size)
            do throws(Errno) {
                let got = try Syscall.check {
                    buffer.withUnsafeMutableBytes { call($0.baseAddress, size) }
                }
                return Array(buffer[0..<got])
            } catch {
                if error == .outOfRange { continue }
                throw error
            }
        }
    }
}
