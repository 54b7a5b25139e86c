import Glibc
import WardSystem

/// Functions for paths as text.
enum Path {
    /// realpath(3): an absolute path without symbolic links. Throws where the file does not exist.
    static func real(_ path: String) throws(Errno) -> String {
        guard let resolved = realpath(path, nil) else { throw Errno(rawValue: errno) }
        defer { free(resolved) }
        return String(cString: resolved)
    }

    /// As `real`, without touching the last component: it may be missing or a dead mount.
    static func realParent(_ path: String) throws(Errno) -> String {
        var trimmed = path.utf8[...]
        while trimmed.count > 1 && trimmed.last == UInt8(ascii: "/") { trimmed.removeLast() }
        if trimmed.elementsEqual("/".utf8) { return "/" }
        let name = lastComponent(String(Substring(trimmed)))
        if name == "." || name == ".." || name.isEmpty { return try real(path) }
        let parent = trimmed.dropLast(name.utf8.count)
        let resolved = try real(parent.isEmpty ? "." : String(Substring(parent)))
        return resolved == "/" ? "/" + name : resolved + "/" + name
    }

    static func lastComponent(_ path: String) -> String {
        PathBytes.lastComponent(path)
    }

    static func parent(_ path: String) -> String {
        PathBytes.parent(path)
    }

    static func joined(_ directory: String, _ name: String) -> String {
        directory.hasSuffix("/") ? directory + name : directory + "/" + name
    }

    static var current: String? {
        guard let directory = getcwd(nil, 0) else { return nil }
        defer { free(directory) }
        return String(cString: directory)
    }
}
