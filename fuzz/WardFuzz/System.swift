import CWardLinux
import WardSystem
import WardVolume

@testable import WardDaemon
@testable import WardFUSE

/// Bytes from the kernel: tables in /proc, and requests from /dev/fuse.
let systemParsers: [Parser] = [
    Parser(name: "proc-files") { bytes in
        let table = MountTable(parsing: bytes)
        require(
            table.entries.count <= bytes.count { $0 == UInt8(ascii: "\n") } + 1,
            "more mounts than lines")
        for entry in table.entries {
            for path in [entry.mountPoint, entry.mountPoint + "/\u{301}"] {
                let length = table.covering(path)?.mountPoint.utf8.count ?? 0
                require(length >= entry.mountPoint.utf8.count, "a mount does not cover \(path)")
            }
            let found = table.entry(at: entry.mountPoint)?.mountPoint ?? ""
            require(PathBytes.isSame(found, entry.mountPoint), "another mount is found")
        }
        _ = DescriptorInformation(parsing: bytes)
        _ = ProcessInformation(parsing: bytes)
        for line in bytes.split(separator: UInt8(ascii: "\n")) {
            line.withUnsafeBytes { line in
                for minor: UInt32 in [0, 0x2f, .max] {
                    if let mapping = MappingInformation(parsing: line, deviceMinor: minor) {
                        require(mapping.inode != 0, "a mapping without a file")
                    }
                }
            }
        }
    },
    /// Two paths, with a zero byte between them.
    Parser(name: "paths", maximumBytes: 256) { bytes in
        let parts = bytes.split(separator: 0, maxSplits: 1).map {
            String(decoding: $0, as: UTF8.self)
        }
        guard let path = parts.first, path.utf8.last != UInt8(ascii: "/") else { return }
        let (parent, name) = (PathBytes.parent(path), PathBytes.lastComponent(path))
        require(!name.utf8.contains(UInt8(ascii: "/")), "a name with a slash")
        // Several slashes in a row count as one, and need not be kept.
        let isSimple = !path.utf8.indices.contains { path.utf8[$0...].starts(with: "//".utf8) }
        if isSimple, path.utf8.contains(UInt8(ascii: "/")) {
            let whole = (parent.utf8.elementsEqual("/".utf8) ? "" : parent) + "/" + name
            require(PathBytes.isSame(whole, path), "a path changes: \(path)")
            require(PathBytes.isInside(path, parent), "a path is not where it is: \(path)")
        }
        guard let other = parts.dropFirst().first, other.utf8.last != UInt8(ascii: "/") else {
            return
        }
        require(PathBytes.isInside(path + "/" + other, path), "a path is not inside: \(other)")
        require(
            !PathBytes.isInside(path, path + "/" + other), "a path is inside what is in it")
    },
    Parser(name: "kernel-messages", maximumBytes: 512) { bytes in
        // Memory behind the bytes must not be read, so each array has exactly their size.
        bytes.withUnsafeBytes { source in
            if let request = Request(source) { readBody(request.body, bytes.count) }
            // The fuzzer need not guess the header.
            var message = [UInt8](repeating: 0, count: MemoryLayout<fuse_in_header>.size) + bytes
            message.withUnsafeMutableBytes {
                $0.storeBytes(of: UInt32($0.count).littleEndian, as: UInt32.self)
            }
            message.withUnsafeBytes { source in
                guard let request = Request(source) else { fatalError("a whole request is none") }
                readBody(request.body, bytes.count)
            }
        }
    },
]

/// Reads a body in the order that its bytes say, with the calls that requests use.
private func readBody(_ body: RequestReader, _ count: Int) {
    var body = body
    func check() {
        require(body.rest.count <= count, "a request has grown")
    }
    while let order = taken({ () throws(Errno) in try body.take(UInt8.self) }) {
        let before = body.rest.count
        switch order % 8 {
        case 0, 1:
            guard let name = taken({ () throws(Errno) in try body.takeName() }) else { return }
            require(!name.contains(0), "a name has its end in it")
            require(body.rest.count == before - name.count - 1, "a name of another length")
        case 2:
            guard
                let write = taken({ () throws(Errno) in try body.take(fuse_write_in.self) }),
                let data = taken({ () throws(Errno) in try body.takeBytes(write.size) })
            else { return }
            require(data.count == Int(write.size), "data of another length")
            _ = data.reduce(0) { $0 ^ $1 }
        case 3:
            guard let set = taken({ () throws(Errno) in try body.take(fuse_setattr_in.self) })
            else { return }
            _ = AttributeChange(set)
        case 4:
            guard let asked = taken({ () throws(Errno) in try body.take(fuse_init_in.self) })
            else { return }
            for sharedStorage in [false, true] {
                guard let agreed = Negotiation(answering: asked, sharedStorage: sharedStorage)
                else { continue }
                let wanted = Negotiation.wanted(sharedStorage: sharedStorage)
                require(agreed.features & ~wanted == 0, "a feature that nobody wants")
                require(
                    agreed.minorVersion <= UInt32(FUSE_KERNEL_MINOR_VERSION), "a later protocol")
                require(agreed.reply.minor == agreed.minorVersion, "another protocol is answered")
            }
        case 5: _ = taken { () throws(Errno) in try body.take(fuse_batch_forget_in.self) }
        case 6: _ = taken { () throws(Errno) in try body.take(fuse_create_in.self) }
        default:
            guard let size = taken({ () throws(Errno) in try body.take(UInt32.self) }) else {
                return
            }
            _ = taken { () throws(Errno) in try body.takeBytes(size) }
        }
        check()
    }
}
