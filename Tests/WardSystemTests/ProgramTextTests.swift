import Glibc
import Testing

@testable import WardSystem

@Suite struct ProgramTextTests {
    @Test("code is let go of, and comes back when it is executed again")
    func letGo() throws {
        // Other tests run meanwhile and bring their code into memory: it may be more than before.
        var isLess = false
        for _ in 0..<20 where !isLess {
            let before = try residentCode()
            #expect(before > 0)
            #expect(ProgramText.letGo() >= before)
            isLess = try residentCode() < before
        }
        #expect(isLess)
    }

    @Test(
        "only a file's code that can't be written is meant",
        arguments: [
            ("7f00-8000 r-xp 00026000 fe:00 333151      /usr/lib/libc.so.6", 0x7f00..<0x8000),
            ("7f00-8000 r-xp 00000000 fe:00 1 /with space/ward (deleted)", 0x7f00..<0x8000),
            ("7f00-8000 r--p 00026000 fe:00 333151      /usr/lib/libc.so.6", nil),
            ("7f00-8000 rwxp 00026000 fe:00 333151      /usr/lib/libc.so.6", nil),
            ("7f00-8000 r-xs 00026000 fe:00 333151      /usr/lib/libc.so.6", nil),
            ("7f00-8000 r-xp 00000000 00:00 0           [vdso]", nil),
            ("7f00-8000 r-xp 00000000 00:00 0 ", nil),
            ("8000-7f00 r-xp 00026000 fe:00 333151      /usr/lib/libc.so.6", nil),
            ("8000 r-xp 00026000 fe:00 333151      /usr/lib/libc.so.6", nil),
            ("", nil),
        ] as [(String, Range<UInt>?)])
    func codeRange(line: String, range: Range<UInt>?) {
        #expect(ProgramText.codeRange(line.utf8) == range)
    }

    /// Bytes of file-backed code in this process's memory, `proc_pid_smaps(5)`.
    private func residentCode() throws -> Int {
        let smaps = try #require(fopen("/proc/self/smaps", "r"))
        defer { fclose(smaps) }
        var (bytes, isCode) = (0, false)
        var buffer = [CChar](repeating: 0, count: 1 << 13)
        while fgets(&buffer, Int32(buffer.count), smaps) != nil {
            let line = String(
                decoding: buffer.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
            if line.hasPrefix("Rss:"), isCode {
                bytes += (Int(line.split(separator: " ")[1]) ?? 0) * 1024
            } else if line.first?.isHexDigit == true, line.first?.isUppercase == false {
                isCode = ProgramText.codeRange(line.utf8) != nil
            }
        }
        return bytes
    }
}
