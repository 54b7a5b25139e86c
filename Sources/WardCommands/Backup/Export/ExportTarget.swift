import Glibc
import WardConsole
import WardControl
import WardFormat
import WardSystem

/// The directory that receives an export: `files`, and the list of classes beside it. Until the
/// export is complete, files are made in `unfinished` before they get their names.
final class ExportTarget: TreeTarget {
    static let filesName = "files"
    static let stagingName = "unfinished"
    private static let newName = "new"
    private static let listName = "classes"

    let path: String
    let files: OwnedDescriptor
    private let staging: OwnedDescriptor
    private let head: ClassList.Head
    private let console: Console
    private let listFile: OwnedDescriptor
    private var list: ByteOutput
    private(set) var failure: Errno?

    /// Makes the directories, or takes over those of an interrupted export. `head` is that of an
    /// incomplete export.
    init(_ path: String, _ head: ClassList.Head, _ console: Console) throws(Errno) {
        self.path = path
        self.head = head
        self.console = console
        for name in [ExportTarget.filesName, ExportTarget.stagingName] {
            do throws(Errno) {
                try Syscall.mkdirat(AT_FDCWD, path + "/" + name, 0o700)
            } catch {
                if error != .fileExists { throw error }
            }
        }
        let flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW
        files = try OwnedDescriptor(opening: path + "/" + ExportTarget.filesName, flags)
        staging = try OwnedDescriptor(opening: path + "/" + ExportTarget.stagingName, flags)
        // From now on a later run recognises the export.
        if (try? ClassList.head(path + "/" + ClassList.fileName)) == nil {
            try ExportTarget.writeHead(head, staging.rawValue, path)
        }
        listFile = OwnedDescriptor(
            adopting: try Syscall.openat(
                staging.rawValue, ExportTarget.listName,
                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600))
        list = ByteOutput(descriptor: listFile.rawValue)
        list.buffer = head.line
    }

    private static func writeHead(
        _ head: ClassList.Head, _ staging: Int32, _ path: String
    ) throws(Errno) {
        let file = OwnedDescriptor(
            adopting: try Syscall.openat(
                staging, "head", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode: 0o600))
        var output = ByteOutput(descriptor: file.rawValue)
        output.buffer = head.line
        try output.flush()
        try Syscall.renameat(staging, "head", AT_FDCWD, path + "/" + ClassList.fileName)
    }

    /// Names the list after all exported files are durable.
    func finish(isComplete: Bool) throws(Errno) {
        try list.flush()
        if let failure { throw failure }
        var head = head
        head.isComplete = isComplete
        let line = head.line
        try line.withUnsafeBufferPointer { bytes throws(Errno) in
            try Syscall.pwrite(listFile.rawValue, bytes.baseAddress!, bytes.count, at: 0)
        }
        try Syscall.syncFileSystem(of: files.rawValue)
        try Syscall.renameat(
            staging.rawValue, ExportTarget.listName, AT_FDCWD, path + "/" + ClassList.fileName)
        discard()
        try Syscall.unlinkat(AT_FDCWD, path + "/" + ExportTarget.stagingName, AT_REMOVEDIR)
        try Syscall.syncFileSystem(of: files.rawValue)
    }

    private func append(_ line: JSONValue) {
        list.buffer += line.bytes
        list.buffer.append(UInt8(ascii: "\n"))
        do throws(Errno) {
            try list.flushIfLarge()
        } catch {
            failure = failure ?? error
        }
    }

    /// Adds the class of an item to the list. `place` is any path that leads to the item.
    private func note(_ place: String, _ path: [UInt8]) {
        guard
            let text = try? ExtendedAttribute.text(of: ExtendedAttribute.wardClass, path: place),
            let value = ProtectionClass(spelling: text)
        else { return }
        append(ClassList.line(path, value))
    }

    // MARK: TreeTarget

    /// Existing entries of `files` come from this export or an interrupted one of the same volume.
    func occupied(isSame: Bool) -> TreeCopy.Conflict { isSame ? .skip : .replace }

    func makeFile(
        in directory: Int32, _ path: [UInt8], from source: Int32
    ) throws(Errno) -> OwnedDescriptor {
        discard()
        return OwnedDescriptor(
            adopting: try Syscall.openat(
                staging.rawValue, ExportTarget.newName, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW,
                mode: 0o600))
    }

    func publish(
        _ file: borrowing OwnedDescriptor, as name: [UInt8], in directory: Int32, replacing: Bool
    ) throws(Errno) {
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.renameat(staging.rawValue, ExportTarget.newName, directory, name)
        }
    }

    func discard() { try? Syscall.unlinkat(staging.rawValue, ExportTarget.newName) }

    func keeps(_ name: [UInt8], in source: Int32, _ path: [UInt8]) {
        // A descriptor, because names need not be UTF-8.
        let node = try? NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.openat(source, name, OpenFlag.path | O_NOFOLLOW)
        }
        guard let node else { return }
        note("/proc/self/fd/\(node)", path)
        Syscall.close(node)
    }

    func enter(
        _ directory: Int32, _ path: [UInt8], from source: Int32, isNew: Bool
    ) throws(Errno) -> Bool {
        note("/proc/self/fd/\(source)", path)
        // An earlier run may have finished this directory and taken its owner's permissions away.
        if !isNew { try Syscall.fchmod(directory, 0o700) }
        return true
    }

    func leave(_ directory: Int32) throws(Errno) {}

    func surplus(_ path: [UInt8]) {
        let place = Path.joined(
            Path.joined(self.path, ExportTarget.filesName), String(decoding: path, as: UTF8.self))
        console.note("\(Text.printable(place)) is not in the volume any more; it stays")
    }

    func meaning(of error: Errno, at path: [UInt8]) -> (why: String, hint: String)? { nil }
}
