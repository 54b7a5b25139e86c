import CWardLinux
import Testing
import WardVolume

@testable import WardFUSE

@Suite("directory listings are packed as the kernel reads them")
struct DirectoryPackerTests {
    private func add(_ packer: inout DirectoryPacker, _ name: String, _ entry: Entry?) -> Bool {
        Array(name.utf8).withUnsafeBytes {
            packer.add(name: $0, inode: 7, type: 8, nextOffset: 3, entry: entry)
        }
    }

    @Test("names are filled up to eight bytes with zeros", arguments: 1...17)
    func padding(_ length: Int) {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 256, alignment: 8)
        defer { buffer.deallocate() }
        for index in buffer.indices { buffer[index] = 0xFF }
        var packer = DirectoryPacker(buffer, withEntries: false, .exclusive)
        #expect(add(&packer, String(repeating: "n", count: length), nil))
        #expect(packer.count == (24 + length + 7) / 8 * 8)
        let dirent = buffer.load(as: fuse_dirent.self)
        #expect(dirent.ino == 7 && dirent.off == 3 && dirent.type == 8)
        #expect(dirent.namelen == UInt32(length))
        #expect(buffer[24..<(24 + length)].allSatisfy { $0 == UInt8(ascii: "n") })
        #expect(buffer[(24 + length)..<packer.count].allSatisfy { $0 == 0 })
        #expect(buffer[packer.count] == 0xFF, "nothing is written behind the entry")
    }

    @Test("an entry that does not fit is refused and leaves no trace")
    func full() {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 63, alignment: 8)
        defer { buffer.deallocate() }
        var packer = DirectoryPacker(buffer, withEntries: false, .exclusive)
        #expect(add(&packer, "a", nil))
        #expect(!add(&packer, "b", nil), "the second needs 32 of the 31 bytes left")
        #expect(packer.count == 32)
    }

    @Test("readdirplus carries look-ups; without one the node is 0")
    func lookups() {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 512, alignment: 8)
        defer { buffer.deallocate() }
        var packer = DirectoryPacker(buffer, withEntries: true, .exclusive)
        var attributes = Attributes()
        attributes.sizeBytes = 99
        attributes.mayBeCached = false
        #expect(add(&packer, "..", nil))
        #expect(packer.count == 160)
        #expect(add(&packer, "f", Entry(node: 42, generation: 5, attributes: attributes)))
        #expect(buffer.load(as: fuse_direntplus.self).entry_out.nodeid == 0)
        let second = buffer.load(fromByteOffset: 160, as: fuse_direntplus.self).entry_out
        #expect(second.nodeid == 42 && second.generation == 5 && second.attr.size == 99)
        #expect(second.entry_valid == 86400)
        #expect(second.attr_valid == 0, "attributes of a class that is not fully open")
    }
}
