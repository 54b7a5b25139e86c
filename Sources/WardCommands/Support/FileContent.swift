import CWardLinux
import Glibc
import WardSystem

/// The content of one file into another.
enum FileContent {
    /// Data regions only, so that holes stay holes; lseek(2). What was in memory of it is wiped. `progress` is told bytes done.
    static func copy(
        from source: Int32, to copy: Int32, sizeBytes size: Int, _ progress: (Int) -> Void
    ) throws(Errno) {
        let capacity = 1 << 20
        let buffer = UnsafeMutableRawPointer.allocate(byteCount: capacity, alignment: 4096)
        defer {
            explicit_bzero(buffer, capacity)
            buffer.deallocate()
        }
        if size > 0 { try Syscall.ftruncate(copy, size) }
        var offset = 0
        while offset < size {
            guard let start = try nextData(source, from: offset) else { break }
            let end = (try? Syscall.lseek(source, start, Int32(SEEK_HOLE))) ?? size
            offset = start
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
