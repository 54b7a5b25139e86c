import CWardLinux
import Glibc
import WardSystem

/// Copies the content of a file into another.
enum FileContent {
    /// Copies data regions only, so that holes stay holes; lseek(2). Wipes its buffer afterwards.
    /// `progress` gets the number of bytes done.
    ///
    /// - Parameter mayHaveHoles: False: does not look for holes, which takes as long as the content
    ///   of a small file.
    static func copy(
        from source: Int32, to copy: Int32, sizeBytes size: Int, mayHaveHoles: Bool = true,
        _ progress: (Int) -> Void
    ) throws(Errno) {
        if size == 0 { return }
        let capacity = min(1 << 20, (size + 4095) & ~4095)
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 4096)
        defer {
            explicit_bzero(buffer, capacity)
            buffer.deallocate()
        }
        if mayHaveHoles { try Syscall.ftruncate(copy, size) }
        var offset = 0
        while offset < size {
            var end = size
            if mayHaveHoles {
                guard let start = try nextData(source, from: offset) else { break }
                end = (try? Syscall.lseek(source, start, Int32(SEEK_HOLE))) ?? size
                offset = start
            }
            while offset < min(end, size) {
                let count = min(capacity, min(end, size) - offset)
                let got = try Syscall.pread(source, buffer, count, at: offset)
                if got == 0 { return }
                try Syscall.pwrite(copy, buffer, got, at: offset)
                offset += got
                progress(offset)
            }
        }
    }

    /// The offset of the next data; nil where only a hole follows.
    private static func nextData(_ source: Int32, from offset: Int) throws(Errno) -> Int? {
        do throws(Errno) {
            return try Syscall.lseek(source, offset, Int32(SEEK_DATA))
        } catch {
            if error == .noSuchAddressOrDevice { return nil }
            if error == .invalidArgument { return offset }
            throw error
        }
    }
}
