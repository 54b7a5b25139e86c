import Glibc
import WardSystem

/// Reads and writes files as an ordinary program does; returns plain errors.
enum DemoFile {
    /// A text in every file, which the search of the backing directory looks for.
    static let marker = "MEET-ME-AT-THE-LIGHTHOUSE"

    static func write(_ text: String, to path: String) throws(Errno) {
        let file = try OwnedDescriptor(
            opening: path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        let bytes = Array(text.utf8)
        try Syscall.writeAll(file.rawValue, bytes, bytes.count)
        try file.close()
    }

    static func write(_ bytes: [UInt8], to path: String) throws(Errno) {
        let file = try OwnedDescriptor(
            opening: path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        try Syscall.writeAll(file.rawValue, bytes, bytes.count)
        try file.close()
    }

    /// Opens and reads the file: returns its text or the error.
    static func read(_ path: String) -> Result<String, Errno> {
        do throws(Errno) {
            return .success(try FileReading.text(of: path, limit: 1 << 24))
        } catch {
            return .failure(error)
        }
    }

    /// Reads from the start of an open file.
    static func read(_ descriptor: Int32) -> Result<String, Errno> {
        var buffer = [UInt8](repeating: 0, count: 4096)
        do throws(Errno) {
            let count = try Syscall.pread(descriptor, &buffer, buffer.count, at: 0)
            return .success(String(decoding: buffer[0..<count], as: UTF8.self))
        } catch {
            return .failure(error)
        }
    }

    /// Random bytes of a photograph's size, with the marker in every 4 KiB.
    static func photograph(seed: UInt64, megabytes: Int) -> [UInt8] {
        let count = megabytes << 20
        let marker = Array(DemoFile.marker.utf8)
        var state = seed &* 0x9E37_79B9_7F4A_7C15 | 1
        return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            let words = UnsafeMutableRawBufferPointer(buffer)
            for offset in stride(from: 0, to: count, by: 8) {
                state ^= state << 13
                state ^= state >> 7
                state ^= state << 17
                words.storeBytes(of: state, toByteOffset: offset, as: UInt64.self)
            }
            for offset in stride(from: 0, to: count, by: 4096) {
                for (index, byte) in marker.enumerated() { words[offset + index] = byte }
            }
            for (index, byte) in [UInt8]([0xFF, 0xD8, 0xFF, 0xE0]).enumerated() {
                words[index] = byte
            }
            initialized = count
        }
    }

    /// Whether the file holds exactly these bytes.
    static func holds(_ bytes: [UInt8], _ path: String) -> Bool {
        (try? FileReading.bytes(of: path, limit: 1 << 26)) == bytes
    }
}
