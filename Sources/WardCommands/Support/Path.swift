import Glibc
import WardSystem

/// Paths as text.
enum Path {
    /// realpath(3): absolute, without symbolic links. Throws where it does not exist.
    static func real(_ path: String) throws(Errno) -> String {
        guard let resolved = realpath(path, nil) else { throw Errno(rawValue: errno) }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// As `real`, but the last component is not touched: it may be missing, or be a dead mount.
    static func realParent(_ path: String) throws(Errno) -> String {
        var trimmed = path[...]
        while trimmed.count > 1 && trimmed.hasSuffix("/") { trimmed = trimmed.dropLast() }
        if trimmed == "/" { return "/" }
        let name = lastComponent(String(trimmed))
        if name == "." || name == ".." || name.isEmpty { return try real(path) }
        let parent = trimmed.dropLast(name.count)
        let resolved = try real(parent.isEmpty ? "." : String(parent))
        return resolved == "/" ? "/" + name : resolved + "/" + name
    }

    static func lastComponent(_ path: String) -> String {
        String(path.split(separator: "/").last ?? "")
    }

    static func parent(_ path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    static func joined(_ directory: String, _ name: String) -> String {
        directory.hasSuffix("/") ? directory + name : directory + "/" + name
    }

    /// Whether `path` is `directory` or lies in it; both absolute.
    static func isInside(_ path: String, _ directory: String) -> Bool {
        path == directory || directory == "/" || path.hasPrefix(directory + "/")
    }

    static var current: String? {
        guard let directory = getcwd(nil, 0) else { return nil }
        defer { free(directory) }
        return String(cString: directory)
    }
}
