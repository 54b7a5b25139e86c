import CWardLinux
import Glibc
import WardFormat
import WardSystem

/// All directories and regular files of a mounted volume, or of a part of it, with their classes.
/// Opens no file and needs no key, so it works in every lock state. Leaves out files that vanish
/// meanwhile.
public struct FileSurvey: Sendable {
    /// Is called with the kind of thing looked at, the number done, and the total where it is
    /// known.
    public typealias Progress = (_ what: String, _ done: Int, _ total: Int?) -> Void

    /// A directory.
    public struct Directory: Sendable {
        /// Path below the top; begins with "/". The top is "/".
        public var path: String
        /// The class that new files get (`user.ward.class`).
        public var protectionClass: ProtectionClass?
        /// The directory itself is marked as synchronised (`user.ward.synced`).
        public var isMarked = false
        /// The index of the directory around it; nil for the top.
        var parent: Int?
        /// Absolute path as the kernel gave it, without a zero byte: names need not be UTF-8.
        var rawPath: [CChar]
        /// The synchronising program, judged by the directory's entries.
        var tool: SyncTool?
    }

    struct Entry: Sendable {
        var file: Audit.File
        /// Absolute path with a zero byte at its end.
        var rawPath: [CChar]
        var inode: UInt64
        var directory: Int
    }

    /// Absolute path without a slash at its end.
    public let top: String
    /// Each directory stands after the one around it; the first is the top.
    public private(set) var directories: [Directory] = []
    private(set) var entries: [Entry] = []
    /// Files and directories that could not be looked at, by path below the top.
    public private(set) var unreachable: [(path: String, reason: Errno)] = []

    /// The regular files, sorted by path.
    public var files: [Audit.File] { entries.map(\.file) }

    /// - Parameter top: An absolute path in a mounted volume.
    public init(top: String, progress: Progress = { _, _, _ in }) {
        self.top = top
        let found = readDirectories(progress)
        readFiles(found, progress)
    }

    // MARK: Directories

    /// A thread gets at least this many entries to look at.
    static let smallestShare = 16

    private struct Visit: Sendable {
        var directories: [[UInt8]] = []
        var files: [[UInt8]] = []
        var tool: SyncTool?
        var protectionClass: ProtectionClass?
        var isMarked = false
        var failure: Errno?
    }

    /// Reads level by level. Returns the names of files with the index of their directory.
    private mutating func readDirectories(_ progress: Progress) -> [(Int, [UInt8])] {
        var files: [(Int, [UInt8])] = []
        directories = [
            Directory(path: "/", parent: nil, rawPath: Array(top.utf8CString.dropLast()))
        ]
        var level = 0..<1
        while !level.isEmpty {
            let first = level.lowerBound
            let paths = level.map { directories[$0].rawPath }
            let visits = Parallel.map(
                paths.count, threads: Parallel.threadCount, share: FileSurvey.smallestShare,
                name: "ward-audit", tick: { progress("directories", first + $0, nil) },
                { FileSurvey.visit(paths[$0]) })
            for (index, visit) in zip(level, visits) {
                directories[index].tool = visit.tool
                directories[index].protectionClass = visit.protectionClass
                directories[index].isMarked = visit.isMarked
                if let failure = visit.failure, !FileSurvey.isGone(failure) || index == 0 {
                    unreachable.append((directories[index].path, failure))
                }
                let parent = directories[index]
                for name in visit.directories {
                    directories.append(
                        Directory(
                            path: FileSurvey.joined(parent.path, name), parent: index,
                            rawPath: parent.rawPath + [47] + name.map { CChar(bitPattern: $0) }))
                }
                for name in visit.files { files.append((index, name)) }
            }
            level = level.upperBound..<directories.count
        }
        return files
    }

    private static func visit(_ path: [CChar]) -> Visit {
        var visit = Visit()
        let path = path + [0]
        do throws(Errno) {
            let directory = OwnedDescriptor(
                adopting: try LongPath.reach(path) { path throws(Errno) in
                    try Syscall.openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY)
                })
            try DirectoryReading.entries(of: directory.rawValue) { entry in
                switch entry.type {
                case UInt8(DT_DIR): visit.directories.append(entry.name)
                case UInt8(DT_REG): visit.files.append(entry.name)
                default: return
                }
                visit.tool = visit.tool ?? SyncTool(entry: entry.name, type: entry.type)
            }
        } catch {
            visit.failure = error
        }
        visit.protectionClass = try? protectionClass(of: path)
        let mark = try? attribute("user.ward.synced", of: path)
        visit.isMarked = mark?.elementsEqual("marked".utf8) ?? false
        visit.directories.sort { $0.lexicographicallyPrecedes($1) }
        return visit
    }

    // MARK: Files

    private enum Look: Sendable {
        case seen(Entry)
        case gone
        case failed(String, Errno)
    }

    private mutating func readFiles(_ found: [(Int, [UInt8])], _ progress: Progress) {
        let directories = directories
        let looks = Parallel.map(
            found.count, threads: Parallel.threadCount, share: FileSurvey.smallestShare,
            name: "ward-audit", tick: { progress("files", $0, found.count) },
            { index -> Look in
                let (directory, name) = found[index]
                let parent = directories[directory]
                let path = parent.rawPath + [47] + name.zeroTerminated
                return FileSurvey.look(
                    path, FileSurvey.joined(parent.path, name), directory: directory)
            })
        for look in looks {
            switch look {
            case .seen(let entry): entries.append(entry)
            case .gone: continue
            case .failed(let path, let reason): unreachable.append((path, reason))
            }
        }
        entries.sort { $0.file.path < $1.file.path }
    }

    /// Looks a second time where the entry became another kind of file between two calls.
    private static func look(_ path: [CChar], _ shown: String, directory: Int) -> Look {
        var failure = Errno.noSuchFileOrDirectory
        for _ in 0..<2 {
            do throws(Errno) {
                let status = try LongPath.reach(path) { path throws(Errno) in
                    try Syscall.fstatat(AT_FDCWD, path)
                }
                guard status.st_mode & S_IFMT == S_IFREG else { return .gone }
                return .seen(
                    Entry(
                        file: Audit.File(
                            path: shown, protectionClass: try protectionClass(of: path),
                            sizeBytes: Int(status.st_size)),
                        rawPath: path, inode: UInt64(status.st_ino), directory: directory))
            } catch {
                if isGone(error) { return .gone }
                failure = error
            }
        }
        return .failed(shown, failure)
    }

    /// The entry or a directory above it was removed or replaced.
    private static func isGone(_ error: Errno) -> Bool {
        error == .noSuchFileOrDirectory || error == .notDirectory || error == .staleNFSFileHandle
    }

    // MARK: Single things

    static func joined(_ directory: String, _ name: [UInt8]) -> String {
        (directory == "/" ? "/" : directory + "/") + String(decoding: name, as: UTF8.self)
    }

    private static func protectionClass(of path: [CChar]) throws(Errno) -> ProtectionClass {
        let text = String(decoding: try attribute("user.ward.class", of: path), as: UTF8.self)
        guard let protectionClass = ProtectionClass(spelling: text) else { throw .invalidArgument }
        return protectionClass
    }

    /// The value of an attribute of at most 4 KiB. `path` ends with a zero byte.
    static func attribute(_ name: String, of path: [CChar]) throws(Errno) -> [UInt8] {
        var value = [UInt8](repeating: 0, count: 4096)
        let count = try LongPath.reach(path) { path throws(Errno) in
            try Syscall.check { ward_getxattr(path, name, &value, value.count) }
        }
        value.removeLast(value.count - Int(count))
        return value
    }

    /// For each directory: the nearest synchronised directory, itself or one above it.
    func synchronisers() -> [Synchroniser?] {
        var result: [Synchroniser?] = []
        result.reserveCapacity(directories.count)
        for directory in directories {
            if directory.isMarked {
                result.append(Synchroniser(directory: directory.path, tool: nil))
            } else if let tool = directory.tool {
                result.append(Synchroniser(directory: directory.path, tool: tool.rawValue))
            } else {
                result.append(directory.parent.flatMap { result[$0] })
            }
        }
        return result
    }

    struct Synchroniser: Sendable {
        /// Path inside the volume, or an absolute path above the mount point.
        var directory: String
        /// Nil where the directory is marked.
        var tool: String?
    }
}
