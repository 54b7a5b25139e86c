import CWardLinux
import Glibc
import WardSystem

/// The content of one file into another.
enum FileContent {
    /// Data regions only, so that holes stay holes; lseek(2). What was in memory of it is wiped.
    /// `progress` is told bytes done.
    ///
    /// - Parameter mayHaveHoles: False: nobody is asked for them, which a small file would take as
    /// long for as its content.
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

    /// Nil: only a hole follows.
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
