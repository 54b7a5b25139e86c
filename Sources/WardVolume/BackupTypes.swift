import CWardLinux
import Glibc
import Synchronization
import WardFormat
import WardSystem

/// A name in the backing directory, as a backup sees it.
public struct BackupEntry: Sendable {
    public enum Kind: String, Sendable {
        case file, directory, link
        /// FIFO, socket, device.
        case special
        case unknown

        init(_ type: UInt8) {
            self =
                switch Int(type) {
                case Int(DT_REG): .file
                case Int(DT_DIR): .directory
                case Int(DT_LNK): .link
                case Int(DT_UNKNOWN): .unknown
                default: .special
                }
        }

        init(mode: mode_t) {
            self =
                switch mode & S_IFMT {
                case S_IFREG: .file
                case S_IFDIR: .directory
                case S_IFLNK: .link
                default: .special
                }
        }
    }

    /// Why something is left out.
    public enum Exclusion: String, Sendable {
        /// It carries the mark.
        case marked
        /// It is in `Library/Caches` or `tmp`.
        case cache
        /// Work that is under way, or that a power cut has left.
        case unfinished
    }

    /// As it is on disk: ciphertext.
    public var name: [UInt8]
    public var kind: Kind
    /// Nil: it belongs into the backup.
    public var exclusion: Exclusion?
    /// Where they were asked for, of what belongs into the backup.
    public var stamp: BackupStamp?

    init(name: [UInt8], kind: Kind) {
        self.name = name
        self.kind = kind
    }
}

/// A backing directory and what is in it, by name.
public struct BackupDirectory: Sendable {
    /// From the volume's root, without slashes at the ends; empty for the root.
    public var path: [UInt8]
    /// For decrypting names in it; nil where its record is damaged.
    var id: [UInt8]?
    public var entries: [BackupEntry]

    /// The path of one of its entries.
    public func path(of entry: BackupEntry) -> [UInt8] { path.appending(component: entry.name) }
}

/// What tells later whether a backing file has changed.
public struct BackupStamp: Equatable, Sendable {
    /// Clocks of file systems tick every 10 ms at the most: two changes within this time may look
    /// like one.
    static let tick = Duration.milliseconds(20)

    var inode: UInt64
    var sizeBytes: Int
    var modification: Duration
    var change: Duration
    var type: mode_t
    /// On the clock that file systems stamp with.
    var observed: Duration

    init(_ status: FileStatus) {
        inode = UInt64(status.st_ino)
        sizeBytes = Int(status.st_size)
        modification =
            .seconds(status.st_mtim.tv_sec) + .nanoseconds(status.st_mtim.tv_nsec)
        change = .seconds(status.st_ctim.tv_sec) + .nanoseconds(status.st_ctim.tv_nsec)
        type = status.st_mode & S_IFMT
        observed = SystemClock.sinceEpoch()
    }

    /// Changed so shortly before it was looked at that a later change could look the same.
    var isFresh: Bool { change + BackupStamp.tick >= observed }

    /// The same file, unchanged.
    func isSame(as other: BackupStamp) -> Bool {
        inode == other.inode && sizeBytes == other.sizeBytes
            && modification == other.modification && change == other.change && type == other.type
    }
}

/// Something that could not be looked at as it should.
public struct BackupProblem: Sendable {
    /// From the volume's root: ciphertext.
    public var path: [UInt8]
    /// Where it could not be listed, and is missing from the result with all that is in it.
    public var errno: Errno?
    public var reason: String
}

public typealias BackupProblems = [BackupProblem]

/// Concurrency: any thread; guarded by its mutex.
final class ProblemList: Sendable {
    private let problems = Mutex<[BackupProblem]>([])

    func add(_ path: [UInt8], _ errno: Errno?, _ reason: String) {
        problems.withLock {
            $0.append(BackupProblem(path: path, errno: errno, reason: reason))
        }
    }

    var all: [BackupProblem] {
        problems.withLock { $0 }.sorted { $0.path.lexicographicallyPrecedes($1.path) }
    }
    var firstErrno: Errno? { problems.withLock { $0.first?.errno } }
}
