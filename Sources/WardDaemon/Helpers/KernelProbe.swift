import Glibc
import WardFUSE
import WardSystem

/// The helper's part of `KernelCheck`: opens the probe's file, maps its first page, and reads both
/// pages before and after the daemon has them dropped.
public struct KernelProbe: ~Copyable {
    /// The socket to the daemon.
    private static let socket: Int32 = 3

    private let file: OwnedDescriptor
    private let mapping: UnsafeMutableRawPointer
    private let content: [UInt8]
    /// Where the kernel copies mapped bytes to.
    private let copies: (reading: Int32, writing: Int32)

    /// Opens the file of this path. `content` is what each page begins with.
    private init(_ path: String, content: [UInt8]) throws(Errno) {
        let file = try OwnedDescriptor(opening: path, O_RDONLY)
        let mapping = mmap(nil, ProbeFile.pageBytes, PROT_READ, MAP_SHARED, file.rawValue, 0)
        guard let mapping, mapping != MAP_FAILED else { throw Errno(rawValue: errno) }
        copies = try Syscall.pipe()
        self.file = file
        self.mapping = mapping
        self.content = content
    }

    /// Does the helper's work. The daemon sends the file's name, gets a sight, sends a byte when
    /// the pages are gone, and gets another sight.
    public static func run(mountPoint: String) throws(Errno) {
        let name = try FileReading.bytes(of: socket, limit: ProbeFile.nameBytes)
        guard name.count == ProbeFile.nameBytes else { return }
        let probe: KernelProbe
        do throws(Errno) {
            probe = try KernelProbe(
                mountPoint + "/" + String(decoding: name, as: UTF8.self), content: name)
        } catch {
            return try tell(PageSight(mapped: .refused(error), read: .refused(error)))
        }
        try tell(probe.sight())
        guard try FileReading.bytes(of: socket, limit: 1).count == 1 else { return }
        try tell(probe.sight())
    }

    private static func tell(_ sight: PageSight) throws(Errno) {
        let bytes = sight.bytes
        try Syscall.writeAll(socket, bytes, bytes.count)
    }

    private func sight() -> PageSight { PageSight(mapped: readMapping(), read: readFile()) }

    /// Has the kernel copy from the mapping into a pipe. It faults the page in as an access of this
    /// process would, and answers EFAULT where that would be SIGBUS.
    private func readMapping() -> PageSight.Outcome {
        do throws(Errno) {
            try Syscall.writeAll(copies.writing, mapping, content.count)
            return outcome(try FileReading.bytes(of: copies.reading, limit: content.count))
        } catch {
            return .refused(error)
        }
    }

    /// Reads the second page by the descriptor.
    private func readFile() -> PageSight.Outcome {
        var bytes = [UInt8](repeating: 0, count: content.count)
        do throws(Errno) {
            _ = try Syscall.pread(file.rawValue, &bytes, bytes.count, at: ProbeFile.pageBytes)
            return outcome(bytes)
        } catch {
            return .refused(error)
        }
    }

    private func outcome(_ bytes: [UInt8]) -> PageSight.Outcome {
        bytes == content ? .content : .otherBytes
    }
}
