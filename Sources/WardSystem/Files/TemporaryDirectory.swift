import Glibc

/// A new directory for one run, below `TMPDIR`.
public enum TemporaryDirectory {
    /// The longest parent of a directory in which sockets are made: their paths are short, unix(7):
    /// 108 bytes.
    private static let longestParentBytes = 39

    /// The parent: `TMPDIR` if it is absolute and short enough for sockets below it, else /tmp.
    public static func parent(forSockets: Bool = false) -> String {
        let wanted = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
        if forSockets, !wanted.hasPrefix("/") || wanted.utf8.count > longestParentBytes {
            return "/tmp"
        }
        return wanted
    }

    /// Makes the directory, readable to its owner alone: `name` and random letters, mkdtemp(3).
    /// Returns its path.
    public static func make(_ name: String, in parent: String) throws(Errno) -> String {
        let letters = String(repeating: "X", count: 6)
        var template = Array("\(parent)/\(name).\(letters)".utf8CString)
        guard mkdtemp(&template) != nil else { throw Errno(rawValue: errno) }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
