import Glibc

/// The pages of this process's program and libraries that hold code.
public enum ProgramText {
    /// Drops the pages from this process's memory; each comes back from the page cache when it is
    /// executed again. For a process that waits after its start: it does not execute the code of
    /// the start again.
    ///
    /// Code is never written, so nothing is lost. Mappings that hold data, relocated or not, stay.
    /// Returns the size of the mappings in bytes: 0 without `/proc`. `proc_pid_maps(5)`,
    /// `madvise(2)` `MADV_DONTNEED`.
    @discardableResult
    public static func letGo() -> Int {
        guard let maps = try? FileReading.bytes(of: "/proc/self/maps", limit: .max) else {
            return 0
        }
        var bytes = 0
        for line in maps.split(separator: UInt8(ascii: "\n")) {
            guard let range = codeRange(line) else { continue }
            let start = UnsafeMutableRawPointer(bitPattern: range.lowerBound)
            if madvise(start, range.count, MADV_DONTNEED) == 0 { bytes += range.count }
        }
        return bytes
    }

    /// The addresses of a line such as `7f64-7f9a r-xp 00026000 fe:00 333151 /usr/lib/libc.so.6`.
    /// Nil where it is not a file's code, or can be written.
    static func codeRange(_ line: some Sequence<UInt8>) -> Range<UInt>? {
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
        guard words.count == 6, words[1].elementsEqual("r-xp".utf8),
            words[5].first(where: { $0 != UInt8(ascii: " ") }) == UInt8(ascii: "/")
        else { return nil }
        let ends = words[0].split(separator: UInt8(ascii: "-")).map {
            UInt(String(decoding: $0, as: UTF8.self), radix: 16)
        }
        guard ends.count == 2, let start = ends[0], let end = ends[1], start < end else {
            return nil
        }
        return start..<end
    }
}
