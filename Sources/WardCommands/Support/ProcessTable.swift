import Glibc
import WardSystem

/// Processes, read from `/proc`. Only root sees the files of other users' processes.
enum ProcessTable {
    struct User {
        var pid: Int32
        var program: String
        /// The first file or directory that was found in use.
        var path: String
    }

    /// Processes with an open file or working directory in `mountPoint`. Only reads links, which
    /// asks no mount.
    static func users(of mountPoint: String) -> [User] {
        let own = getpid()
        return processes().compactMap { pid in
            guard pid != own, let path = usedPath(of: pid, in: mountPoint) else { return nil }
            let name = (try? FileReading.text(of: "/proc/\(pid)/comm")) ?? "?"
            return User(pid: pid, program: String(name.filter { !$0.isNewline }), path: path)
        }
    }

    /// Whether a process has ended; a zombie counts as ended.
    static func hasEnded(_ pid: Int32) -> Bool {
        if kill(pid, 0) != 0 && errno == ESRCH { return true }
        // The line is "pid (comm) state …". Search from the end: comm may contain any character.
        guard let text = try? FileReading.text(of: "/proc/\(pid)/stat"),
            let end = text.lastIndex(of: ")")
        else { return kill(pid, 0) != 0 && errno == ESRCH }
        let state = text[text.index(after: end)...].first { $0 != " " }
        return state == "Z" || state == "X"
    }

    static func processes() -> [Int32] {
        guard let directory = try? OwnedDescriptor(opening: "/proc", O_RDONLY | O_DIRECTORY),
            let names = try? DirectoryReading.names(in: directory.rawValue)
        else { return [] }
        return names.compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
    }

    private static func usedPath(of pid: Int32, in mountPoint: String) -> String? {
        for link in ["cwd", "root"] {
            if let target = target(of: "/proc/\(pid)/\(link)", in: mountPoint) { return target }
        }
        let path = "/proc/\(pid)/fd"
        guard let directory = try? OwnedDescriptor(opening: path, O_RDONLY | O_DIRECTORY),
            let names = try? DirectoryReading.names(in: directory.rawValue)
        else { return nil }
        for name in names {
            let link = path + "/" + String(decoding: name, as: UTF8.self)
            if let target = target(of: link, in: mountPoint) { return target }
        }
        return nil
    }

    private static func target(of link: String, in mountPoint: String) -> String? {
        var buffer = [UInt8](repeating: 0, count: 4096)
        guard let count = try? Syscall.readlinkat(AT_FDCWD, link, &buffer, buffer.count) else {
            return nil
        }
        let target = String(decoding: buffer[0..<count], as: UTF8.self)
        return PathBytes.isInside(target, mountPoint) ? target : nil
    }
}
