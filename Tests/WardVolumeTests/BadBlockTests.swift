import Glibc
import Testing
import WardSystem

@testable import WardVolume

/// A block that the disk can't read makes its own pages unreadable, and nothing else.
@Suite struct BadBlockTests {
    @Test("a page in the middle of what is written over need not be readable; that mends it")
    func writtenOver() throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let (_, handle) = try harness.create("f")
        var content = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 / 3) }
        try harness.write(handle, 0, content)
        let unit = [UInt8](repeating: 7, count: 16_384)
        storage.spoil(offset: 10 * 4096 + 5)
        #expect(throws: Errno.ioError) { try harness.read(handle, 32_768, unit.count) }
        // Pages 8 to 12 of the backing file.
        try harness.write(handle, 32_768, unit)
        // The disk has replaced the bad block.
        storage.spoil(offset: nil)
        content.replaceSubrange(32_768..<32_768 + unit.count, with: unit)
        #expect(try harness.read(handle, 0, content.count) == content)
        // A write needs the pages at its two ends; if they can't be read, their content is not
        // lost.
        storage.spoil(offset: 8 * 4096 + 5)
        #expect(throws: Errno.ioError) { try harness.write(handle, 32_768, unit) }
        storage.spoil(offset: nil)
        #expect(try harness.read(handle, 0, content.count) == content)
        harness.volume.release(handle, harness.context)
    }

    @Test(
        "a small file opens although a page between its ends can't be read", arguments: [2, 3, 4])
    func opened(pages: Int) throws {
        let storage = FailingStorage()
        let harness = try VolumeHarness(storage: storage)
        let content = (0..<pages * 4096 - 1000).map { UInt8(truncatingIfNeeded: $0 / 3) }
        let (node, first) = try harness.create("f")
        try harness.write(first, 0, content)
        harness.volume.release(first, harness.context)
        harness.volume.forget(node, lookups: 1)
        let found = try harness.lookup("f").node
        storage.spoil(offset: 4096 + 5)
        if pages == 2 {
            #expect(throws: Errno.ioError) { try harness.open(found) }
        } else {
            let handle = try harness.open(found)
            #expect(try harness.read(handle, 0, 3000) == Array(content[..<3000]))
            #expect(throws: Errno.ioError) { try harness.read(handle, 4096, 100) }
            let end = content.count - 500
            #expect(try harness.read(handle, end, 500) == Array(content[end...]))
            harness.volume.release(handle, harness.context)
        }
        storage.spoil(offset: nil)
        let handle = try harness.open(found)
        #expect(try harness.read(handle, 0, content.count) == content)
        harness.volume.release(handle, harness.context)
    }
}
