import DataProtection
import Glibc

/// Tells in less than a microsecond whether an open database can be read. SQLite and the events of
/// a lock are slower.
///
/// It reads a byte of the `-wal`. While the class is open, the byte comes from the kernel's cache.
/// A lock empties that cache, and the volume refuses the read. SQLite takes no locks on the `-wal`.
/// On the database itself, closing any descriptor would drop this process's locks,
/// fcntl_locking(2).
final class Sentinel: Sendable {
    enum Finding { case readable, locked, lost }

    private let path: String
    /// The device number of the database when it was opened.
    private let device: dev_t?
    /// Negative where there is no `-wal`; then every look finds `readable`.
    private let file: Int32

    init(_ path: String) {
        self.path = path
        device = Sentinel.device(path)
        file = open(path + "-wal", O_RDONLY | O_CLOEXEC)
    }

    deinit { if file >= 0 { Glibc.close(file) } }

    /// Looks at the file now. Takes no lock.
    func look() -> Finding {
        if file < 0 { return .readable }
        var byte: UInt8 = 0
        let count = pread(file, &byte, 1, 0)
        if count == 1 { return .readable }
        // Reading an empty file needs no key. Asking where its data begins does (row O4).
        if count == 0, lseek(file, 0, seekData) >= 0 || errno == ENXIO { return .readable }
        switch errno {
        case EPERM: return .locked
        case ENOTCONN, ECONNABORTED, ENODEV: return .lost
        default: return .readable
        }
    }

    /// Whether the path now leads to another mount, or to no file.
    var isElsewhere: Bool { Sentinel.device(path) != device }

    private static func device(_ path: String) -> dev_t? {
        var status = stat()
        return stat(path, &status) == 0 ? status.st_dev : nil
    }
}

/// SEEK_DATA of lseek(2), which glibc declares only with _GNU_SOURCE.
private let seekData: Int32 = 3
