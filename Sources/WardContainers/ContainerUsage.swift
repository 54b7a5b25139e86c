import CWardLinux
import Glibc
import WardSystem

/// The files in a container: number and size for each class.
public struct ContainerUsage: Equatable, Sendable {
    /// The number and the size of files.
    public struct Files: Equatable, Sendable {
        public var count = 0
        public var sizeBytes = 0
    }

    /// The key is the class, Apple's string. A file with several names counts once.
    public private(set) var byClass: [String: Files] = [:]
    /// The number of files and directories that could not be examined.
    public private(set) var unreadable = 0

    public var count: Int { byClass.values.reduce(0) { $0 + $1.count } }
    public var sizeBytes: Int { byClass.values.reduce(0) { $0.clampedSum($1.sizeBytes) } }

    /// Walks the directory; follows no links and enters no other file system. Works in every lock
    /// state.
    public init(of path: String) {
        guard let root = try? OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
            let status = try? Syscall.fstat(root.rawValue)
        else {
            unreadable = 1
            return
        }
        var seen: Set<UInt64> = []
        walk(root.rawValue, status.st_dev, &seen)
    }

    private mutating func walk(_ directory: Int32, _ device: dev_t, _ seen: inout Set<UInt64>) {
        guard let names = try? DirectoryReading.names(in: directory) else {
            unreadable += 1
            return
        }
        for name in names {
            do throws(Errno) {
                let node = OwnedDescriptor(
                    adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                        try Syscall.openat(
                            directory, name, Directories.pathOnly | O_NOFOLLOW)
                    })
                let status = try Syscall.fstat(node.rawValue)
                guard status.st_dev == device else { continue }
                switch status.st_mode & S_IFMT {
                case S_IFREG:
                    if status.st_nlink > 1, !seen.insert(UInt64(status.st_ino)).inserted {
                        continue
                    }
                    let found = try Directories.protectionClass(of: node.rawValue) ?? ""
                    var files = byClass[found] ?? Files()
                    files.count += 1
                    files.sizeBytes = files.sizeBytes.clampedSum(Int(status.st_size))
                    byClass[found] = files
                case S_IFDIR:
                    let inner = OwnedDescriptor(
                        adopting: try Syscall.openat(
                            AT_FDCWD, "/proc/self/fd/\(node.rawValue)", O_RDONLY | O_DIRECTORY))
                    walk(inner.rawValue, device, &seen)
                default: break
                }
            } catch {
                if error != .noSuchFileOrDirectory { unreadable += 1 }
            }
        }
    }
}
