import Foundation
import Glibc
import Testing
import WardFormat
import WardSystem
import WardVolumeCheck

@testable import WardVolume

/// pread(2) may return fewer bytes than there are, before the end of the file (network and FUSE
/// stores do). A short answer must not be taken for a hole, the end, or damage.
@Suite struct ShortAnswerTests {
    /// `/dense`, `/holes` with holes and `/short`, which ends in its first page; pages have
    /// `pageBytes`.
    private func fill(_ harness: VolumeHarness) throws -> [String: [UInt8]] {
        let page = harness.parameters.pageBytes
        var contents: [String: [UInt8]] = [:]
        func add(_ name: String, _ parts: [(offset: Int, count: Int)]) throws {
            let (node, handle) = try harness.create(name)
            var content: [UInt8] = []
            for (number, part) in parts.enumerated() {
                let bytes = (0..<part.count).map {
                    UInt8(truncatingIfNeeded: $0 &* 7 &+ number) | 1
                }
                try harness.write(handle, part.offset, bytes)
                content += [UInt8](repeating: 0, count: max(0, part.offset - content.count))
                content += bytes
            }
            contents[name] = content
            harness.volume.release(handle, harness.context)
            harness.volume.forget(node, lookups: 1)
        }
        try add("dense", [(0, 5 * page + 100)])
        try add("holes", [(0, page / 2), (4 * page, 2 * page), (9 * page, page + 100)])
        try add("short", [(0, page / 4)])
        return contents
    }

    /// Does what a program does with each file, one file after the other.
    private func use(
        _ harness: VolumeHarness, _ contents: [String: [UInt8]], _ what: String
    ) throws {
        for (name, content) in contents.sorted(by: { $0.key < $1.key }) {
            let node = try harness.lookup(name).node
            defer { harness.volume.forget(node, lookups: 1) }
            #expect(try harness.size(node) == content.count, "\(what)")
            let handle = try harness.open(node)
            defer { harness.volume.release(handle, harness.context) }
            #expect(try harness.read(handle, 0, 1 << 20) == content, "\(what): \(name)")
            // Inside a page, so that the rest of the page is read; then past the end and back,
            // which changes the last page.
            for offset in stride(from: 10, to: content.count - 20, by: 1000) {
                try harness.write(handle, offset, Array(content[offset..<(offset + 10)]))
            }
            try harness.write(handle, content.count, [1, 2, 3])
            try harness.setSize(node, handle, content.count)
            #expect(try harness.read(handle, 0, 1 << 20) == content, "\(what): \(name), written")
        }
    }

    @Test("any answer is short: everything is as it is", arguments: [512, 4096])
    func everyAnswer(pageBytes: Int) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(pageBytes: pageBytes, storage: storage)
        let contents = try fill(harness)
        try harness.reopen(storage: storage)
        let before = storage.readCalls
        try use(harness, contents, "as it is")
        let usual = storage.readCalls - before
        try harness.reopen(storage: storage)
        var shortened = 0
        for n in 0..<1000 {
            // One byte, a part of a header, a part of a page, whole pages, nearly everything.
            let bytes = [1, 100, 300, pageBytes, 2 * pageBytes + 1, 5 * pageBytes][n % 6]
            let what = "answer \(n) of \(bytes) bytes"
            let before = storage.readCalls
            storage.shortenAnswer(n, to: bytes)
            try use(harness, contents, what)
            guard storage.wasShortened() else { break }
            shortened += 1
            #expect(storage.readCalls - before <= usual + 1, "\(what)")
            try harness.reopen(storage: storage)
        }
        #expect(shortened >= usual)
        #expect(harness.events.integrityFailures == [])
    }

    @Test("any answer is short while an unclean end is mended, or the volume is checked")
    func afterAnUncleanEnd() throws {
        for n in 0..<1000 {
            let storage = FailingStorage()
            let harness = try VolumeHarness(pageBytes: 512, storage: storage)
            let contents = try fill(harness)
            storage.shortenAnswer(n, to: [1, 100, 300, 512, 1025][n % 5])
            try harness.reopen(clean: false, storage: storage)
            harness.volume.mendDoubtfulFiles { false }
            #expect(harness.volume.durability.doubt.intervals.isEmpty)
            let check = VolumeCheck(harness.volume, repairs: true, name: "now", threads: 1).run()
            #expect(check.findings.isEmpty && check.isComplete, "answer \(n): \(check.findings)")
            let wasShort = storage.wasShortened()
            try use(harness, contents, "answer \(n)")
            #expect(harness.events.integrityFailures == [], "answer \(n)")
            #expect(
                !harness.events.all.contains { if case .healed = $0 { true } else { false } },
                "answer \(n)")
            guard wasShort else {
                #expect(n > 10)
                return
            }
        }
    }

    @Test("pread(2) that gives a part of a file is asked for the rest")
    func theKernel() throws {
        // A seq_file: the kernel returns as many lines as fit into one page of memory.
        let path = "/proc/crypto"
        let file = try Syscall.open(path, O_RDONLY)
        defer { Syscall.close(file) }
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        let first = Glibc.pread(file, &buffer, buffer.count, 0)
        var whole: [UInt8] = []
        while true {
            let got = Glibc.pread(file, &buffer, buffer.count, whole.count)
            try #require(got >= 0)
            if got == 0 { break }
            whole += buffer[..<got]
        }
        try #require(first > 0 && first < whole.count)
        let storage = PosixStorage()
        let got = try buffer.withUnsafeMutableBytes { bytes throws(Errno) in
            try storage.pread(file, bytes.baseAddress!, bytes.count, at: 0)
        }
        #expect(Array(buffer[..<got]) == whole)
    }
}
