import Glibc
import WardConsole
import WardFormat
import WardSystem

/// Sets a class on files of one directory. Any thread may call it.
struct FileChange: Sendable {
    enum Outcome: Sendable {
        case changed
        /// A symbolic link or special file, which has no class.
        case skipped
        /// A directory: the caller handles it.
        case directory
        /// Removed meanwhile.
        case gone
        case failed(CommandFailure)
    }

    let protectionClass: ProtectionClass
    let isRekeying: Bool
    /// True: each change is synced. False: one sync follows later.
    let isSynced: Bool
    /// The directory of the files; stays open while this value is used.
    let directory: Int32
    /// The volume's device.
    let device: dev_t
    /// The directory's path for messages.
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
                // Changes the node itself, so that no exchanged file is changed instead.
                do throws(Errno) {
                    try ClassAttribute.set(
                        Array(protectionClass.letter.utf8),
                        at: "/proc/self/fd/\(node.rawValue)", isSynced: isSynced)
                } catch .staleNFSFileHandle {
                    // The name was removed meanwhile. A file that has the name now was made later.
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
