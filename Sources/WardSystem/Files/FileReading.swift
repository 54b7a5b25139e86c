import Glibc

/// Reads small files whole: `/proc`, records of mounted volumes, messages through a pipe.
public enum FileReading {
    /// Reads all of the file, or a little more than `limit` bytes where it is longer. Throws the
    /// errors of open(2) and read(2).
    public static func bytes(of path: String, limit: Int = 1 << 20) throws(Errno) -> [UInt8] {
        let file = try OwnedDescriptor(opening: path, O_RDONLY)
        return try bytes(of: file.rawValue, limit: limit)
    }

    /// The same, decoded as UTF-8.
    public static func text(of path: String, limit: Int = 1 << 20) throws(Errno) -> String {
        String(decoding: try bytes(of: path, limit: limit), as: UTF8.self)
    }

    /// Reads until the end of the file, or at least `limit` bytes. Throws the errors of read(2).
    public static func bytes(of descriptor: Int32, limit: Int = 1 << 20) throws(Errno) -> [UInt8] {
        var result: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while result.count < limit {
            let got = try Syscall.read(descriptor, &buffer, buffer.count)
            if got == 0 { break }
            result += buffer[0..<got]
        }
        return result
    }
}
