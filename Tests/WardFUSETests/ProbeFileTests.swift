import CWardLinux
import Testing

@testable import WardFUSE

@Suite("the probe's file is no file of the volume")
struct ProbeFileTests {
    private func takes(
        _ file: ProbeFile, _ opcode: fuse_opcode, of node: UInt64, _ name: [UInt8] = []
    ) throws -> Bool {
        var header = fuse_in_header()
        header.len = UInt32(MemoryLayout<fuse_in_header>.size + name.count + 1)
        header.opcode = opcode.rawValue
        header.nodeid = node
        let bytes = withUnsafeBytes(of: header) { Array($0) } + name + [0]
        return try bytes.withUnsafeBytes { file.takes(try #require(Request($0))) }
    }

    @Test("it has one name in the root, another one each time, and none in between")
    func names() throws {
        let file = ProbeFile()
        let first = file.show()
        #expect(first.count == ProbeFile.nameBytes)
        #expect(try takes(file, FUSE_LOOKUP, of: 1, first))
        #expect(try !takes(file, FUSE_LOOKUP, of: 1, first.dropLast()))
        #expect(try !takes(file, FUSE_LOOKUP, of: 1, first + [0x61]))
        #expect(try !takes(file, FUSE_LOOKUP, of: 4096, first))
        #expect(try !takes(file, FUSE_UNLINK, of: 1, first))
        file.hide()
        #expect(try !takes(file, FUSE_LOOKUP, of: 1, first))
        let second = file.show()
        #expect(second != first)
        #expect(try !takes(file, FUSE_LOOKUP, of: 1, first))
        #expect(file.entryReply.generation == 2)
    }

    @Test("what asks for its node never reaches the volume, at any time")
    func node() throws {
        let file = ProbeFile()
        for opcode in [FUSE_READ, FUSE_FORGET, FUSE_GETATTR, FUSE_SETATTR, FUSE_STATX] {
            #expect(try takes(file, opcode, of: ProbeFile.node))
        }
    }

    @Test("it is read until it is refused, page by page")
    func content() throws {
        let file = ProbeFile()
        #expect(file.content(from: 0, count: 8) == nil)
        let name = file.show()
        let page = ProbeFile.pageBytes
        let all = try #require(file.content(from: 0, count: 10 * page))
        #expect(all.count == 2 * page)
        for start in [0, page] { #expect(Array(all[start..<(start + name.count)]) == name) }
        #expect(file.content(from: page, count: name.count) == name)
        #expect(file.content(from: 2 * page, count: 1) == [])
        file.refuse()
        #expect(file.content(from: 0, count: 8) == nil)
    }
}
