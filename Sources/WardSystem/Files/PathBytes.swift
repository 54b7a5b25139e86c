/// Paths as the kernel has them: bytes between slashes.
///
/// Swift's own comparison takes "é" in one scalar for "é" in two. It also takes a slash and a
/// combining accent ("/" and U+0301, a possible beginning of a name) for one character that is no
/// slash.
public enum PathBytes {
    private static let slash = UInt8(ascii: "/")

    /// Whether two paths have the same bytes.
    public static func isSame(_ path: String, _ other: String) -> Bool {
        path.utf8.elementsEqual(other.utf8)
    }

    /// Whether `path` is `directory` or lies in it. Both are absolute, without symbolic links, and
    /// without slashes at their ends.
    public static func isInside(_ path: String, _ directory: String) -> Bool {
        if isSame(directory, "/") { return true }
        guard path.utf8.starts(with: directory.utf8) else { return false }
        let rest = path.utf8.dropFirst(directory.utf8.count)
        return rest.isEmpty || rest.first == slash
    }

    /// The parts between slashes; empty ones are left out.
    public static func components(_ path: String) -> [String] {
        path.utf8.split(separator: slash).map { String(Substring($0)) }
    }

    /// The last part; empty where there is none.
    public static func lastComponent(_ path: String) -> String { components(path).last ?? "" }

    /// The part before the last slash: "/" for an item of the root, "." where there is no slash.
    public static func parent(_ path: String) -> String {
        guard let last = path.utf8.lastIndex(of: slash) else { return "." }
        return last == path.utf8.startIndex ? "/" : String(Substring(path.utf8[..<last]))
    }
}
