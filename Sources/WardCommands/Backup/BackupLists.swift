import ArgumentParser
import Glibc
import WardBackup
import WardSystem

/// The two list files that a backup command finds through its environment. They are removed with
/// this object.
final class BackupLists {
    let directory: String
    var filesPath: String { directory + "/files" }
    var excludesPath: String { directory + "/excludes" }

    private let files: BackupList
    private let excludes: BackupList
    private var filesOutput: ByteOutput
    private var excludesOutput: ByteOutput
    private let filesFile: OwnedDescriptor
    private let excludesFile: OwnedDescriptor
    private(set) var unwritable: [[UInt8]] = []
    private(set) var failure: Errno?

    init(_ tool: BackupTool, root: String) throws(Errno) {
        directory = try TemporaryDirectory.make("ward-backup", in: TemporaryDirectory.parent())
        var list = BackupList(root: root)
        list.tool = tool
        files = list
        list.isExcludes = true
        excludes = list
        let flags = O_WRONLY | O_CREAT | O_EXCL
        filesFile = try OwnedDescriptor(opening: directory + "/files", flags, mode: 0o600)
        excludesFile = try OwnedDescriptor(opening: directory + "/excludes", flags, mode: 0o600)
        filesOutput = ByteOutput(descriptor: filesFile.rawValue)
        excludesOutput = ByteOutput(descriptor: excludesFile.rawValue)
    }

    deinit { remove() }

    /// Removes both files and their directory.
    func remove() {
        unlink(filesPath)
        unlink(excludesPath)
        rmdir(directory)
    }

    func add(_ directory: BackupDirectory) {
        unwritable += files.append(directory, to: &filesOutput.buffer)
        unwritable += excludes.append(directory, to: &excludesOutput.buffer)
        attempt { output throws(Errno) in try output.flushIfLarge() }
    }

    func finish() throws(Errno) {
        attempt { output throws(Errno) in try output.flush() }
        if let failure { throw failure }
    }

    private func attempt(_ body: (inout ByteOutput) throws(Errno) -> Void) {
        do throws(Errno) {
            try body(&filesOutput)
            try body(&excludesOutput)
        } catch {
            failure = failure ?? error
        }
    }
}

/// Collects bytes for a descriptor and writes them in large pieces.
struct ByteOutput {
    private let descriptor: Int32
    var buffer: [UInt8] = []

    init(descriptor: Int32) { self.descriptor = descriptor }

    /// Writes if 64 KiB or more are waiting.
    mutating func flushIfLarge() throws(Errno) { if buffer.count >= 1 << 16 { try flush() } }

    mutating func flush() throws(Errno) {
        defer { buffer.removeAll(keepingCapacity: true) }
        try buffer.withUnsafeBufferPointer { bytes throws(Errno) in
            guard let base = bytes.baseAddress else { return }
            try Syscall.writeAll(descriptor, base, bytes.count)
        }
    }
}

extension BackupTool: ExpressibleByArgument {}
