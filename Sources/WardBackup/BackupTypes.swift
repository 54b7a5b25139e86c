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

    /// Why an entry is left out.
    public enum Exclusion: String, Sendable {
        /// It carries the mark `user.ward.backup-excluded`.
        case marked
        /// It is in `Library/Caches` or `tmp`.
        case cache
        /// It is an unfinished change, under way or left by a power cut.
        case unfinished
    }

    /// The stored name: ciphertext.
    public var name: [UInt8]
    public var kind: Kind
    /// Nil: the entry belongs into the backup.
    public var exclusion: Exclusion?
    /// Nil where no stamps were asked for, and for an entry that is left out.
    public var stamp: BackupStamp?

    init(name: [UInt8], kind: Kind) {
        self.name = name
        self.kind = kind
    }
}

/// A backing directory and its entries, sorted by name.
public struct BackupDirectory: Sendable {
    /// Stored path from the volume's root, without slashes at the ends; empty for the root.
    public var path: [UInt8]
    /// The directory's ID, for decrypting names in it; nil where its record is damaged.
    var id: [UInt8]?
    public var entries: [BackupEntry]

    /// The path of one of its entries.
    public func path(of entry: BackupEntry) -> [UInt8] { path.appending(component: entry.name) }
}

/// The attributes that later tell whether a backing file has changed.
public struct BackupStamp: Equatable, Sendable {
    /// Clocks of file systems tick at least every 10 ms. Two changes within this time may look like
    /// one.
    static let tick = Duration.milliseconds(20)

    var inode: UInt64
    var sizeBytes: Int
    var modification: Duration
    var change: Duration
    var type: mode_t
    /// When the attributes were read, on the clock that file systems stamp with.
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

    /// The file changed so shortly before `observed` that a later change could look the same.
    var isFresh: Bool { change + BackupStamp.tick >= observed }

    /// Whether the two stamps are of the same file, unchanged.
    func isSame(as other: BackupStamp) -> Bool {
        inode == other.inode && sizeBytes == other.sizeBytes
            && modification == other.modification && change == other.change && type == other.type
    }
}

/// A place that could not be examined, or not completely.
public struct BackupProblem: Sendable {
    /// Stored path from the volume's root: ciphertext.
    public var path: [UInt8]
    /// Why the directory could not be listed: the result lacks it and all that is in it. Nil for
    /// other problems.
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
