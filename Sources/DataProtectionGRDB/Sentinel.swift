import DataProtection
import Glibc

/// Says in less than a microsecond whether an open database can be read: SQLite and the news of a
/// lock are slower to know.
///
/// It reads a byte of the `-wal`. As long as the class is open that comes from the kernel's cache;
/// a lock empties that, and the volume refuses. It is the `-wal` because SQLite takes no locks on
/// it: closing any descriptor of the database itself would drop the locks that this process has
/// there, fcntl_locking(2).
final class Sentinel: Sendable {
    enum Finding { case readable, locked, lost }

    private let path: String
    /// Of the database, when it was opened.
    private let device: dev_t?
    /// Negative where there is no `-wal`: then nothing is found out.
    private let file: Int32

    init(_ path: String) {
        self.path = path
        device = Sentinel.device(path)
        file = open(path + "-wal", O_RDONLY | O_CLOEXEC)
    }

    deinit { if file >= 0 { Glibc.close(file) } }

    func look() -> Finding {
        if file < 0 { return .readable }
        var byte: UInt8 = 0
        let count = pread(file, &byte, 1, 0)
        if count == 1 { return .readable }
        // An empty one needs no reading; where its data begins has to be asked (row O4).
        if count == 0, lseek(file, 0, seekData) >= 0 || errno == ENXIO { return .readable }
        switch errno {
        case EPERM: return .locked
        case ENOTCONN, ECONNABORTED, ENODEV: return .lost
        default: return .readable
        }
    }

    /// Whether what lies at the path now is on another mount, or none.
    var isElsewhere: Bool { Sentinel.device(path) != device }

    private static func device(_ path: String) -> dev_t? {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_dev : nil
    }
}

/// SEEK_DATA of lseek(2), behind _GNU_SOURCE.
private let seekData: Int32 = 3
