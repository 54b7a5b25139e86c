import CWardLinux
import Testing
import WardSystem

@testable import WardFUSE

@Suite("requests are parsed in place")
struct RequestReaderTests {
    private func bytes<T>(_ value: T) -> [UInt8] { withUnsafeBytes(of: value) { Array($0) } }

    private func lookup(_ name: [UInt8], lengthError: Int = 0) -> [UInt8] {
        var header = fuse_in_header()
        header.len = UInt32(MemoryLayout<fuse_in_header>.size + name.count + lengthError)
        header.opcode = FUSE_LOOKUP.rawValue
        header.nodeid = 1
        header.uid = 1000
        return bytes(header) + name
    }

    @Test("a whole request gives its header and its names")
    func names() throws {
        try lookup(Array("old\0new\0".utf8)).withUnsafeBytes { raw in
            let request = try #require(Request(raw))
            #expect(request.header.uid == 1000)
            var body = request.body
            #expect(Array(try body.takeName()) == Array("old".utf8))
            #expect(Array(try body.takeName()) == Array("new".utf8))
            #expect(body.rest.isEmpty)
        }
    }

    @Test("a name without its zero byte is EINVAL")
    func unterminated() throws {
        try lookup(Array("name".utf8)).withUnsafeBytes { raw in
            var body = try #require(Request(raw)).body
            #expect(throws: Errno.invalidArgument) { _ = try body.takeName() }
        }
    }

    @Test("a request that is not as long as it says is none", arguments: [-1, 1])
    func wrongLength(_ error: Int) {
        lookup(Array("x\0".utf8), lengthError: error).withUnsafeBytes { raw in
            #expect(Request(raw) == nil)
        }
    }

    @Test("structures and data end where the request ends")
    func structures() throws {
        var write = fuse_write_in()
        write.size = 5
        let raw = bytes(write) + Array("1234".utf8)
        try raw.withUnsafeBytes { raw in
            var reader = RequestReader(raw)
            let request = try reader.take(fuse_write_in.self)
            #expect(throws: Errno.invalidArgument) { _ = try reader.takeBytes(request.size) }
            #expect(Array(try reader.takeBytes(4)) == Array("1234".utf8))
            #expect(throws: Errno.invalidArgument) { _ = try reader.take(UInt32.self) }
        }
    }
    private func request(_ opcode: fuse_opcode, _ body: [UInt8]) -> [UInt8] {
        var header = fuse_in_header()
        header.len = UInt32(MemoryLayout<fuse_in_header>.size + body.count)
        header.opcode = opcode.rawValue
        return bytes(header) + body
    }

    @Test(
        "large is what reads or writes 64 KiB and more",
        arguments: [4096, 61_440, 65_536, 1 << 20])
    func large(_ count: Int) throws {
        var read = fuse_read_in()
        read.size = UInt32(count)
        var write = fuse_write_in()
        write.size = UInt32(count)
        let data = [UInt8](repeating: 0, count: count)
        for (raw, mayBeLarge) in [
            (request(FUSE_READ, bytes(read)), true),
            (request(FUSE_WRITE, bytes(write) + data), true),
            (request(FUSE_READDIR, bytes(read)), false),
            // Too short for a READ; its error is found later.
            (request(FUSE_READ, []), false),
        ] {
            try raw.withUnsafeBytes { raw in
                let request = try #require(Request(raw))
                #expect(request.isLarge == (mayBeLarge && count >= 65_536))
            }
        }
    }
}
