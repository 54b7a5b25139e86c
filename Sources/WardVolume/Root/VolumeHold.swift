import CWardLinux
import Glibc
import WardSystem

/// The exclusive lock on a volume, flock(2). Its holder is the only process that works on the
/// volume, as its daemon or beside it. It is held until this value or the process ends.
///
/// It consists of two locks, taken in this order: one on the volume's directory and one on the file
/// `ward.lock` in it. Some backing stores that several machines mount (GlusterFS, JuiceFS, NFS)
/// carry locks of regular files to the other machines, and locks of directories to none. The file
/// has no content; where it is gone it is made again.
public struct VolumeHold: ~Copyable, Sendable {
    public static let fileName = "ward.lock"

    private let directory: OwnedDescriptor
    private var file: OwnedDescriptor?
    /// The backing store has no locks at all: nothing keeps another machine away.
    public let isWithoutLocks: Bool

    /// Takes the lock without waiting. `makesFile`: makes `ward.lock` where there is none. On a
    /// store that can't be written to, the directory's lock must suffice. Throws EWOULDBLOCK where
    /// another process holds one of the two locks.
    public init(_ path: String, makesFile: Bool = true) throws(Errno) {
        let directory = try OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY)
        let hasDirectoryLocks = try VolumeHold.lock(directory.rawValue) == .locked
        let file = try VolumeHold.lockFile(in: directory.rawValue, makesFile: makesFile)
        isWithoutLocks = !hasDirectoryLocks && file < 0
        self.directory = directory
        self.file = file < 0 ? nil : OwnedDescriptor(adopting: file)
    }

    /// The volume's directory, open for reading.
    public var directoryDescriptor: Int32 { directory.rawValue }

    /// Makes `ward.lock` where there was none, and takes its lock. Throws as `init`.
    public mutating func makeFile() throws(Errno) {
        guard file == nil else { return }
        let number = try VolumeHold.lockFile(in: directory.rawValue, makesFile: true)
        if number >= 0 { file = OwnedDescriptor(adopting: number) }
    }

    /// Returns the process that holds a volume's lock. Nil where no process of this machine does.
    /// From /proc/locks, proc(5).
    public static func holder(of path: String) -> Int32? {
        let places = [path, path + "/" + fileName].compactMap { path -> String? in
            var status = FileStatus()
            guard stat(path, &status) == 0 else { return nil }
            let major = hexadecimal(ward_makedev_major(status.st_dev))
            let minor = hexadecimal(ward_makedev_minor(status.st_dev))
            return "\(major):\(minor):\(status.st_ino)"
        }
        guard let table = try? FileReading.text(of: "/proc/locks", limit: 1 << 22) else {
            return nil
        }
        for line in table.split(separator: "\n") {
            // Number, FLOCK, ADVISORY, WRITE, process, major:minor:inode, start, end.
            let fields = line.split(separator: " ")
            if fields.count > 5, fields[1] == "FLOCK", places.contains(String(fields[5])),
                let pid = Int32(fields[4]), pid > 0
            {
                return pid
            }
        }
        return nil
    }

    private static func hexadecimal(_ number: UInt32) -> String {
        let text = String(number, radix: 16)
        return text.count < 2 ? "0" + text : text
    }

    // MARK: Taking

    private enum Answer { case locked, hasNoLocks, needsWriting }

    /// Throws EWOULDBLOCK where another process has the lock.
    private static func lock(_ descriptor: Int32) throws(Errno) -> Answer {
        do throws(Errno) {
            _ = try Syscall.check { flock(descriptor, LOCK_EX | LOCK_NB) }
            return .locked
        } catch {
            switch error.rawValue {
            case ENOLCK, EOPNOTSUPP, ENOSYS: return .hasNoLocks
            // NFS grants an exclusive lock only for a file that is open for writing.
            case EBADF: return .needsWriting
            default: throw error
            }
        }
    }

    /// Returns the descriptor of `ward.lock`, locked; -1 where the lock can't be had. Opens for
    /// reading if that suffices: a file that is open for writing keeps the backing store from being
    /// remounted read-only.
    private static func lockFile(in directory: Int32, makesFile: Bool) throws(Errno) -> Int32 {
        var access = O_RDONLY
        for _ in 0..<100 {
            let number = try openFile(in: directory, access, makesFile: makesFile)
            if number < 0 { return -1 }
            let file = OwnedDescriptor(adopting: number)
            switch try lock(file.rawValue) {
            case .locked: break
            case .hasNoLocks: return -1
            case .needsWriting:
                if access == O_RDWR { return -1 }
                access = O_RDWR
                continue
            }
            let held = try Syscall.fstat(file.rawValue)
            // A program that copies volumes may have put another file in its place meanwhile.
            if let named = try? Syscall.fstatat(directory, fileName), named.st_ino == held.st_ino {
                return file.release()
            }
        }
        throw .wouldBlock
    }

    /// -1 where the file is missing and can't be made, or may not be opened.
    private static func openFile(
        in directory: Int32, _ access: Int32, makesFile: Bool
    ) throws(Errno) -> Int32 {
        let flags = access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC
        do throws(Errno) {
            return try Syscall.openat(directory, fileName, flags)
        } catch {
            switch error.rawValue {
            case ENOENT: if !makesFile { return -1 }
            case EROFS, EACCES, EPERM: return -1
            default: throw error
            }
        }
        do throws(Errno) {
            let number = try Syscall.openat(directory, fileName, flags | O_CREAT, mode: 0o600)
            if geteuid() == 0, let owner = try? Syscall.fstat(directory) {
                // The file belongs to the volume's owner.
                fchown(number, owner.st_uid, owner.st_gid)
            }
            return number
        } catch {
            switch error.rawValue {
            case EROFS, EACCES, EPERM, ENOSPC, EDQUOT: return -1
            default: throw error
            }
        }
    }
}
