import Glibc
import WardSystem

/// Removes directories with their content.
enum DirectoryTree {
    /// Removes the tree without following links or leaving its file system. Returns false where
    /// something is left.
    static func remove(_ path: String) -> Bool {
        guard
            let directory = try? OwnedDescriptor(
                opening: path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
            let status = try? Syscall.fstat(directory.rawValue)
        else { return false }
        empty(directory.rawValue, device: status.st_dev)
        return rmdir(path) == 0
    }

    /// Removes everything in a directory except the entry named `kept`.
    static func empty(_ directory: Int32, but kept: String? = nil) {
        guard let status = try? Syscall.fstat(directory) else { return }
        empty(directory, device: status.st_dev, but: kept)
    }

    private static func empty(_ directory: Int32, device: dev_t, but kept: String? = nil) {
        for name in (try? DirectoryReading.names(in: directory)) ?? []
        where kept.map({ !name.elementsEqual($0.utf8) }) ?? true {
            do throws(Errno) {
                try NodeName(bytes: name).withCString { name throws(Errno) in
                    let status = try Syscall.fstatat(directory, name)
                    guard status.st_mode & S_IFMT == S_IFDIR else {
                        try Syscall.unlinkat(directory, name)
                        return
                    }
                    if status.st_dev != device { return }
                    let inner = OwnedDescriptor(
                        adopting: try Syscall.openat(
                            directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW))
                    empty(inner.rawValue, device: device)
                    try Syscall.unlinkat(directory, name, AT_REMOVEDIR)
                }
            } catch {
                continue  // a file left behind makes the last rmdir fail, which is reported
            }
        }
    }
}
