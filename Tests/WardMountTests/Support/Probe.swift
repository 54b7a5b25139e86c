import Foundation
import Testing

/// A child process that makes system calls on a mount for a test and says what came of each.
///
/// The test process itself never touches a mount: what hangs there, hangs in a child that a
/// time-out kills.
final class Probe {
    private let child: Child
    private let requests: Int32
    private let replies: Int32
    private var pending: [UInt8] = []

    /// Starts a probe of `user` whose relative paths start at `base`.
    init(as user: User, base: String) throws {
        let down = try Child.pipe()
        let up = try Child.pipe()
        let environment = TestEnvironment.shared
        child = try Child(
            user.prefix + [environment.python, "-B", environment.script("probe.py"), base],
            environment: environment.variables, input: down.reading, output: up.writing,
            errors: STDERR_FILENO)
        Glibc.close(down.reading)
        Glibc.close(up.writing)
        requests = down.writing
        replies = up.reading
    }

    deinit {
        Glibc.close(requests)
        Glibc.close(replies)
        _ = child.wait(seconds: 2)
        child.kill()
    }

    /// Sends one operation and waits for what came of it; a time-out is an outcome of its own.
    func call(_ operation: String, _ arguments: any Sendable..., seconds: Double = 30) -> Outcome {
        let request: [Any] = [operation] + arguments.map { $0 as Any }
        guard var line = try? JSONSerialization.data(withJSONObject: request) else {
            return .failure("probe: can't encode \(request)")
        }
        line.append(UInt8(ascii: "\n"))
        var sent = 0
        while sent < line.count {
            let count = line.withUnsafeBytes {
                Glibc.write(requests, $0.baseAddress! + sent, line.count - sent)
            }
            guard count > 0 else { return .failure("probe: gone") }
            sent += count
        }
        guard let reply = readLine(seconds: seconds) else {
            child.kill()
            return .failure("probe: no answer to \(operation)")
        }
        guard
            let object = try? JSONSerialization.jsonObject(with: Data(reply)) as? [String: Any],
            let succeeded = object["ok"] as? Bool, let text = object["text"] as? String
        else { return .failure("probe: answered \(String(decoding: reply, as: UTF8.self))") }
        return Outcome(succeeded: succeeded, text: text)
    }

    /// Ends the probe at once, as a crash would: all of its descriptors close.
    func kill() { child.kill() }

    private func readLine(seconds: Double) -> [UInt8]? {
        let deadline = Date(timeIntervalSinceNow: seconds * TestEnvironment.patience)
        while true {
            if let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
                defer { pending.removeFirst(end + 1) }
                return Array(pending[..<end])
            }
            let left = deadline.timeIntervalSinceNow
            guard left > 0 else { return nil }
            var waiting = pollfd(fd: replies, events: Int16(POLLIN), revents: 0)
            guard poll(&waiting, 1, Int32(left * 1000) + 1) > 0 else { continue }
            var piece = [UInt8](repeating: 0, count: 65_536)
            let count = read(replies, &piece, piece.count)
            guard count > 0 else { return nil }
            pending += piece[..<count]
        }
    }
}

/// The calls the tests use most, by their names.
extension Probe {
    func open(_ path: String, _ flags: String, as key: String, mode: Int = 0o644) -> Outcome {
        call("open", path, flags, key, mode)
    }
    func close(_ key: String) -> Outcome { call("close", key) }
    func pread(_ key: String, _ count: Int, at offset: Int = 0) -> Outcome {
        call("pread", key, count, offset)
    }
    func pwrite(_ key: String, _ content: String, at offset: Int = 0) -> Outcome {
        call("pwrite", key, content, offset)
    }
    func write(_ key: String, _ content: String) -> Outcome { call("write", key, content) }
    func ftruncate(_ key: String, _ length: Int) -> Outcome { call("ftruncate", key, length) }
    func truncate(_ path: String, _ length: Int) -> Outcome { call("truncate", path, length) }
    func fallocate(_ key: String, mode: Int = 0, _ offset: Int, _ length: Int) -> Outcome {
        call("fallocate", key, mode, offset, length)
    }
    func seek(_ key: String, _ offset: Int, _ whence: Int32) -> Outcome {
        call("seek", key, offset, Int(whence))
    }
    func mmap(_ key: String, _ length: Int, _ protection: String, as name: String) -> Outcome {
        call("mmap", key, length, protection, name)
    }
    func touch(_ name: String, at offset: Int = 0, _ length: Int) -> Outcome {
        call("touch", name, offset, length)
    }
    func poke(_ name: String, at offset: Int = 0, _ content: String) -> Outcome {
        call("poke", name, offset, content)
    }
    func fsync(_ key: String) -> Outcome { call("fsync", key) }
    func writeFile(_ path: String, _ content: String, mode: Int = 0o644) -> Outcome {
        call("writeFile", path, content, mode)
    }
    func readFile(_ path: String) -> Outcome { call("readFile", path) }
    /// One field of stat(2): size, mode, type, nlink, ino, mtime_ns…
    func stat(_ path: String, _ field: String) -> Outcome { call("stat", path, field) }
    func lstat(_ path: String, _ field: String) -> Outcome { call("lstat", path, field) }
    func getxattr(_ path: String, _ name: String) -> Outcome { call("getxattr", path, name) }
    func setxattr(_ path: String, _ name: String, _ value: String, flags: Int = 0) -> Outcome {
        call("setxattr", path, name, value, flags)
    }
    func protectionClass(_ path: String) -> Outcome { getxattr(path, "user.ward.class") }
    func setClass(_ path: String, _ value: String) -> Outcome {
        setxattr(path, "user.ward.class", value)
    }
    func mkdir(_ path: String, mode: Int = 0o755) -> Outcome { call("mkdir", path, mode) }
    func rename(_ old: String, _ new: String) -> Outcome { call("rename", old, new) }
    func link(_ old: String, _ new: String) -> Outcome { call("link", old, new) }
    func unlink(_ path: String) -> Outcome { call("unlink", path) }
    func list(_ path: String) -> Outcome { call("list", path) }
    func exists(_ path: String) -> Bool { call("exists", path).text == "True" }
    func tmpfile(_ directory: String, as key: String) -> Outcome { call("tmpfile", directory, key) }
    func linkat(_ key: String, _ path: String) -> Outcome { call("linkat", key, path) }
}
