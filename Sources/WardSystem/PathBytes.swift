/// Paths as the kernel has them: bytes between slashes.
///
/// Swift's own comparison takes "é" in one scalar for "é" in two, and a slash with a combining
/// accent behind it ("/" and U+0301, the beginning of a possible name) for one character that is no
/// slash.
public enum PathBytes {
    private static let slash = UInt8(ascii: "/")

    public static func isSame(_ path: String, _ other: String) -> Bool {
        path.utf8.elementsEqual(other.utf8)
    }

    /// Whether `path` is `directory` or lies in it; both absolute, without symbolic links, and
    /// without slashes at their ends.
    public static func isInside(_ path: String, _ directory: String) -> Bool {
        if isSame(directory, "/") { return true }
        guard path.utf8.starts(with: directory.utf8) else { return false }
        let rest = path.utf8.dropFirst(directory.utf8.count)
        return rest.isEmpty || rest.first == slash
    }

    /// What is between slashes; empty parts are none.
    public static func components(_ path: String) -> [String] {
        path.utf8.split(separator: slash).map { String(Substring($0)) }
    }

    /// Empty where there is none.
    public static func lastComponent(_ path: String) -> String { components(path).last ?? "" }

    /// What is before the last slash: "/" for what lies in the root, "." where there is no slash.
    public static func parent(_ path: String) -> String {
        guard let last = path.utf8.lastIndex(of: slash) else { return "." }
        return last == path.utf8.startIndex ? "/" : String(Substring(path.utf8[..<last]))
    }
}
