import CWardLinux
import Glibc
import WardSystem

/// The exclusive lock on a volume, flock(2): whoever holds it is the only one at work on the
/// volume, as its daemon or beside it. Held until it is let go, or the process ends.
///
/// Two locks make it up, taken in this order: that of the volume's directory, and that of the file
/// `ward.lock` in it. Some stores that several machines mount (GlusterFS, JuiceFS, NFS) carry the
/// locks of regular files to the other machines, and those of directories to none. The file has no
/// content; where it is gone it is made again.
public struct VolumeHold: ~Copyable, Sendable {
    public static let fileName = "ward.lock"

    private let directory: OwnedDescriptor
    private var file: OwnedDescriptor?
    /// The store has no locks at all: nothing keeps another machine away.
    public let isWithoutLocks: Bool

    /// Waits for nobody. `makesFile`: where there is no `ward.lock`, one is made; where the store
    /// can't be written to, the directory's lock has to do. Throws EWOULDBLOCK where somebody else
    /// holds one of the two.
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

    /// Makes `ward.lock` and takes its lock, where there was none. Throws as `init`.
    public mutating func makeFile() throws(Errno) {
        guard file == nil else { return }
        let number = try VolumeHold.lockFile(in: directory.rawValue, makesFile: true)
        if number >= 0 { file = OwnedDescriptor(adopting: number) }
    }

    /// The process that holds a volume's lock; nil where nobody does, or it is on another machine.
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

    /// Throws EWOULDBLOCK where somebody else has it.
    private static func lock(_ descriptor: Int32) throws(Errno) -> Answer {
        do throws(Errno) {
            _ = try Syscall.check { flock(descriptor, LOCK_EX | LOCK_NB) }
            return .locked
        } catch {
            switch error.rawValue {
            case ENOLCK, EOPNOTSUPP, ENOSYS: return .hasNoLocks
            // NFS locks exclusively only what is open for writing.
            case EBADF: return .needsWriting
            default: throw error
            }
        }
    }

    /// The descriptor of `ward.lock`, locked; -1 where there is none to be had. It is open for
    /// reading where that does: a file that is open for writing keeps the store from being mounted
    /// read-only.
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
            // A program that copies volumes to and fro may have put another one in its place
            // meanwhile.
            if let named = try? Syscall.fstatat(directory, fileName), named.st_ino == held.st_ino {
                return file.release()
            }
        }
        throw .wouldBlock
    }

    /// -1 where it is not there and can't be made, or may not be opened.
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
                // It is for whoever the volume is of.
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
