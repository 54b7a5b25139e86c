import Glibc
import WardFormat
import WardSystem

/// Sets a class on the files of one directory, on any thread.
struct FileChange: Sendable {
    enum Outcome: Sendable {
        case changed
        /// A symbolic link or special file: it carries no class.
        case skipped
        /// Left to the caller.
        case directory
        /// Gone meanwhile.
        case gone
        case failed(CommandFailure)
    }

    let protectionClass: ProtectionClass
    let isRekeying: Bool
    /// A sync of each; false: one later.
    let isSynced: Bool
    /// Where the files are, open as long as this is used.
    let directory: Int32
    /// The volume's.
    let device: dev_t
    /// The directory's, as messages have it.
    let path: String

    func apply(to name: [UInt8]) -> Outcome {
        let shown = Path.joined(path, String(decoding: name, as: UTF8.self))
        var owner: uid_t?
        do throws(Errno) {
            let node = OwnedDescriptor(
                adopting: try NodeName(bytes: name).withCString { name throws(Errno) in
                    try Syscall.openat(directory, name, OpenFlag.path | O_NOFOLLOW)
                })
            let status = try Syscall.fstat(node.rawValue)
            guard status.st_dev == device else { return .failed(FileChange.elsewhere(shown)) }
            switch status.st_mode & S_IFMT {
            case S_IFDIR: return .directory
            case S_IFREG where isRekeying: return rekey(name, shown)
            case S_IFREG:
                owner = status.st_uid
                // The node itself, so that nothing exchanged meanwhile is changed instead.
                do throws(Errno) {
                    try ClassAttribute.set(
                        Array(protectionClass.letter.utf8),
                        at: "/proc/self/fd/\(node.rawValue)", isSynced: isSynced)
                } catch .staleNFSFileHandle {
                    // Its name went in between; if another file has it now, that one came later.
                    return try isNamed(name, status.st_ino)
                        ? .failed(
                            FileClass.settingFailure(protectionClass, shown, .staleNFSFileHandle))
                        : .gone
                }
                return .changed
            default: return .skipped
            }
        } catch {
            if error == .noSuchFileOrDirectory { return .gone }
            return .failed(
                FileClass.settingFailure(protectionClass, shown, error, owner: owner))
        }
    }

    private func isNamed(_ name: [UInt8], _ inode: ino_t) throws(Errno) -> Bool {
        try NodeName(bytes: name).withCString { name throws(Errno) in
            try Syscall.fstatat(directory, name, AT_SYMLINK_NOFOLLOW).st_ino == inode
        }
    }

    private func rekey(_ name: [UInt8], _ shown: String) -> Outcome {
        do throws(CommandFailure) {
            try Rekeying(directory: directory, name: name, path: shown)
                .run(protectionClass: protectionClass) { _, _ in }
            return .changed
        } catch {
            return .failed(error)
        }
    }

    static func elsewhere(_ path: String) -> CommandFailure {
        CommandFailure(
            "cannot set the class of", path, why: "another file system is mounted there",
            status: .unavailable)
    }
}
