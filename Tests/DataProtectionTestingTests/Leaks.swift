import Foundation
import WardTestSupport

/// The things that a simulated device has left on the machine: none, soon after its end.
enum Leaks {
    /// Mounts, processes and directories of the device in `directory`.
    static func of(_ directory: String) -> [String] {
        var leaks: [String] = []
        let table = (try? String(contentsOfFile: "/proc/self/mountinfo", encoding: .utf8)) ?? ""
        if table.contains(directory) { leaks.append("mount") }
        if FileManager.default.fileExists(atPath: directory) { leaks.append("files") }
        for entry in (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? [] {
            guard let pid = pid_t(entry), pid != getpid(),
                let line = FileManager.default.contents(atPath: "/proc/\(entry)/cmdline"),
                String(decoding: line, as: UTF8.self).contains(directory)
            else { continue }
            leaks.append("process \(pid)")
        }
        return leaks
    }

    /// The same after up to ten seconds, which they have to go.
    static func left(of directory: String) async -> [String] {
        var left: [String] = []
        _ = await eventually(within: 10) {
            left = of(directory)
            return left.isEmpty
        }
        return left
    }

    /// The directory that holds everything of the device mounted at `path`.
    static func directory(of path: String) -> String {
        (path as NSString).deletingLastPathComponent
    }
}
