import WardSystem

extension MountTable {
    /// The current mount table; empty where it can't be read.
    static var now: MountTable { (try? MountTable()) ?? MountTable(parsing: []) }

    /// The mount that covers an absolute path: the longest match, and of equal ones the last.
    func covering(_ path: String) -> Entry? {
        var best: Entry?
        for entry in entries where PathBytes.isInside(path, entry.mountPoint) {
            if entry.mountPoint.utf8.count >= (best?.mountPoint.utf8.count ?? 0) { best = entry }
        }
        return best
    }

    /// The latest mount below this mount point; it prevents the unmount.
    func inside(_ mountPoint: String) -> Entry? {
        entries.last {
            $0.mountPoint != mountPoint && PathBytes.isInside($0.mountPoint, mountPoint)
        }
    }

    func isMounted(_ mountPoint: String) -> Bool {
        entries.contains { $0.mountPoint == mountPoint && $0.isWard }
    }
}
