import Glibc
import WardSystem

/// The names in a directory, as bytes, sorted; without "." and "..".
enum DirectoryListing {
    static func names(in directory: Int32) throws(Errno) -> [[UInt8]] {
        // fdopendir(3) takes the descriptor over.
        let own = try Syscall.openat(directory, ".", O_RDONLY | O_DIRECTORY)
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
                break
            }
            let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
            if name != [UInt8(ascii: ".")] && name != [UInt8(ascii: "."), UInt8(ascii: ".")] {
                names.append(name)
            }
        }
        return names.sorted { $0.lexicographicallyPrecedes($1) }
    }
}

/// A name that goes to the kernel as it came from it.
struct NodeName {
    let bytes: [UInt8]

    /// Lends the name with a zero byte at its end.
    func withCString<R>(_ body: (UnsafePointer<CChar>) throws(Errno) -> R) throws(Errno) -> R {
        let terminated = bytes.map { CChar(bitPattern: $0) } + [0]
        return try terminated.withUnsafeBufferPointer { buffer throws(Errno) in
            try body(buffer.baseAddress!)
        }
    }
}
