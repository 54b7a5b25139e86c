import CWardLinux
import Glibc
import WardConsole
import WardFormat
import WardSystem

/// The directory of a volume that receives imported files. A file starts without a name, gets its
/// class before its first byte, and its name when it is complete. Existing files are never
/// overwritten.
final class ImportTarget: TreeTarget {
    /// Marks a directory that an import made and has not finished, for later runs.
    static let marker = "user.ward.importing"
    private static let newName = "new"
    /// An attribute of directories that are marked as synchronised or lie in a marked one.
    private static let synchronised = "user.ward.synced"

    let root: OwnedDescriptor
    private let list: ClassList?
    private let console: Console
    private let shownRoot: String
    /// FUSE has no unnamed files before Linux 6.2. Then files are made in a hidden directory of
    /// their class.
    private var isStaged: Bool
    private var staging: (descriptor: Int32, name: String)?
    private var isPending = false

    init(
        _ path: String, _ list: ClassList?, isStaged: Bool, _ console: Console
    ) throws(Errno) {
        root = try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
        self.list = list
        self.isStaged = isStaged
        self.console = console
        shownRoot = path
    }

    deinit { removeStaging() }

    // MARK: TreeTarget

    func occupied(isSame: Bool) -> TreeCopy.Conflict { isSame ? .skip : .refuse }

    func makeFile(
        in directory: Int32, _ path: [UInt8], from source: Int32
    ) throws(Errno) -> OwnedDescriptor {
        if !isStaged {
            do throws(Errno) {
                return try makeUnnamed(in: directory, path)
            } catch {
                guard error == .notSupported || error == .isDirectory else { throw error }
                isStaged = true
            }
        }
        return try makeStaged(in: directory, path)
    }

    private func makeUnnamed(
        in directory: Int32, _ path: [UInt8]
    ) throws(Errno) -> OwnedDescriptor {
        let file = OwnedDescriptor(
            adopting: try Syscall.openat(
                directory, ".", OpenFlag.temporary | O_RDWR, mode: 0o600))
        if let wanted = list?[path] {
            try ExtendedAttribute.set(
                ExtendedAttribute.wardClass, Array(wanted.letter.utf8), descriptor: file.rawValue)
        }
        return file
    }

    private func makeStaged(
        in directory: Int32, _ path: [UInt8]
    ) throws(Errno) -> OwnedDescriptor {
        discard()
        let place = try stagingDirectory()
        var letter = list?[path].map { Array($0.letter.utf8) } ?? []
        if letter.isEmpty {
            letter = try ExtendedAttribute.value(
                of: ExtendedAttribute.wardClass, descriptor: directory)
        }
        try ExtendedAttribute.set(ExtendedAttribute.wardClass, letter, descriptor: place)
        let file = OwnedDescriptor(
            adopting: try Syscall.openat(
                place, ImportTarget.newName, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600))
        isPending = true
        return file
    }

    private func stagingDirectory() throws(Errno) -> Int32 {
        if let staging { return staging.descriptor }
        let name = ".ward-import-\(getpid())"
        try Syscall.mkdirat(root.rawValue, name, 0o700)
        let descriptor = try Syscall.openat(
            root.rawValue, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        staging = (descriptor, name)
        return descriptor
    }

    private func removeStaging() {
        discard()
        guard let staging else { return }
        Syscall.close(staging.descriptor)
        try? Syscall.unlinkat(root.rawValue, staging.name, AT_REMOVEDIR)
        self.staging = nil
    }

    func publish(
        _ file: borrowing OwnedDescriptor, as name: [UInt8], in directory: Int32, replacing: Bool
    ) throws(Errno) {
        let number = file.rawValue
        try NodeName(bytes: name).withCString { name throws(Errno) in
            // linkat(2) overwrites nothing.
            if isPending, let staging {
                try Syscall.linkat(staging.descriptor, ImportTarget.newName, directory, name)
            } else {
                try Syscall.linkat(
                    AT_FDCWD, "/proc/self/fd/\(number)", directory, name,
                    flags: AT_SYMLINK_FOLLOW)
            }
        }
        discard()
    }

    func discard() {
        guard isPending, let staging else { return }
        try? Syscall.unlinkat(staging.descriptor, ImportTarget.newName)
        isPending = false
    }

    func enter(
        _ directory: Int32, _ path: [UInt8], from source: Int32, isNew: Bool
    ) throws(Errno) -> Bool {
        let isOurs = isNew || hasMarker(directory)
        if isOurs {
            try ExtendedAttribute.set(
                ImportTarget.marker, [UInt8(ascii: "1")], descriptor: directory)
            if let wanted = list?[path] { try setClass(wanted, directory, path) }
        } else {
            noteClass(directory, path)
        }
        return isOurs
    }

    private func setClass(
        _ wanted: ProtectionClass, _ directory: Int32, _ path: [UInt8]
    ) throws(Errno) {
        do throws(Errno) {
            try ExtendedAttribute.set(
                ExtendedAttribute.wardClass, Array(wanted.letter.utf8), descriptor: directory)
        } catch {
            // A synchronised directory can't have a class above C. The error is reported for each
            // file in it.
            guard error == .invalidArgument, !wanted.isForSynchronised,
                ward_getxattr(
                    "/proc/self/fd/\(directory)", ImportTarget.synchronised, nil, 0) >= 0
            else { throw error }
            noteClass(directory, path)
        }
    }

    /// Notes that an existing directory keeps its class, which may differ from the listed one for
    /// new files.
    private func noteClass(_ directory: Int32, _ path: [UInt8]) {
        guard let wanted = list?[path],
            let value = try? ExtendedAttribute.value(
                of: ExtendedAttribute.wardClass, descriptor: directory),
            let present = ProtectionClass(spelling: String(decoding: value, as: UTF8.self)),
            present != wanted
        else { return }
        let place =
            path.isEmpty
            ? shownRoot : Path.joined(shownRoot, String(decoding: path, as: UTF8.self))
        console.note(
            "\(Text.printable(place)) keeps its class \(present.letter) for new files; "
                + "in the export it has \(wanted.letter)")
    }

    private func hasMarker(_ directory: Int32) -> Bool {
        (try? ExtendedAttribute.value(of: ImportTarget.marker, descriptor: directory)) != nil
    }

    func leave(_ directory: Int32) throws(Errno) {
        let path = "/proc/self/fd/\(directory)"
        guard ward_removexattr(path, ImportTarget.marker) == 0 || errno == ENODATA else {
            throw Errno(rawValue: errno)
        }
    }

    func keeps(_ name: [UInt8], in source: Int32, _ path: [UInt8]) {}
    func surplus(_ path: [UInt8]) {}

    func meaning(of error: Errno, at path: [UInt8]) -> (why: String, hint: String)? {
        guard error == .invalidArgument, let wanted = list?[path], !wanted.isForSynchronised
        else { return nil }
        let parent = path.lastIndex(of: UInt8(ascii: "/")).map { path[..<$0] } ?? []
        let place = Path.joined(shownRoot, String(decoding: parent, as: UTF8.self))
        guard ward_getxattr(place, ImportTarget.synchronised, nil, 0) >= 0 else { return nil }
        return (
            "class \(wanted.letter) can't be had in a directory that is synchronised",
            "import to another directory"
        )
    }
}
