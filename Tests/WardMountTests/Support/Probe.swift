import Foundation
import Testing

/// A child process that makes system calls on a mount for a test and says what came of each.
///
/// The test process itself never touches a mount: what hangs there, hangs in a child that a
/// time-out kills.
final class Probe {
    private let socket: Int32
    private let process: pid_t
    private var pending: [UInt8] = []

    /// Starts a probe of `user` whose relative paths start at `base`.
    init(as user: User, base: String) throws {
        let first = try JSONSerialization.data(
            withJSONObject: base, options: [.fragmentsAllowed, .withoutEscapingSlashes])
        let connection = try ProbeServer.connect(as: user)
        guard Probe.send(first + [UInt8(ascii: "\n")], to: connection),
            let answer = Probe.readLine(from: connection, &pending, seconds: 30),
            let number = pid_t(String(decoding: answer, as: UTF8.self))
        else {
            Glibc.close(connection)
            throw SupportError("a probe does not begin")
        }
        socket = connection
        process = number
    }

    deinit {
        Glibc.close(socket)
        if !hasEnded(within: 2) { kill() }
    }

    /// Sends one operation and waits for what came of it; a time-out is an outcome of its own.
    func call(_ operation: String, _ arguments: any Sendable..., seconds: Double = 30) -> Outcome {
        let request: [Any] = [operation] + arguments.map { $0 as Any }
        guard var line = try? JSONSerialization.data(withJSONObject: request) else {
            return .failure("probe: can't encode \(request)")
        }
        line.append(UInt8(ascii: "\n"))
        guard Probe.send(line, to: socket) else { return .failure("probe: gone") }
        guard let reply = Probe.readLine(from: socket, &pending, seconds: seconds) else {
            kill()
            return .failure("probe: no answer to \(operation)")
        }
        guard
            let object = try? JSONSerialization.jsonObject(with: Data(reply)) as? [String: Any],
            let succeeded = object["ok"] as? Bool, let text = object["text"] as? String
        else { return .failure("probe: answered \(String(decoding: reply, as: UTF8.self))") }
        return Outcome(succeeded: succeeded, text: text)
    }

    /// Ends the probe at once, as a crash would: all of its descriptors close.
    func kill() {
        _ = Glibc.kill(-process, SIGKILL)
        if !hasEnded(within: 5) {
            FileHandle.standardError.write(Data("probe \(process) outlives SIGKILL\n".utf8))
        }
    }

    /// Its parent does not wait for it, so its number goes with it.
    private func hasEnded(within seconds: Double) -> Bool {
        comesTrue(within: seconds) { Glibc.kill(process, 0) != 0 && errno == ESRCH }
    }

    private static func send(_ bytes: Data, to socket: Int32) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.send(
                    socket, $0.baseAddress! + sent, bytes.count - sent, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            sent += count
        }
        return true
    }

    private static func readLine(
        from socket: Int32, _ pending: inout [UInt8], seconds: Double
    ) -> [UInt8]? {
        let deadline = Date(timeIntervalSinceNow: seconds * TestEnvironment.patience)
        while true {
            if let end = pending.firstIndex(of: UInt8(ascii: "\n")) {
                defer { pending.removeFirst(end + 1) }
                return Array(pending[..<end])
            }
            let left = deadline.timeIntervalSinceNow
            guard left > 0 else { return nil }
            var waiting = pollfd(fd: socket, events: Int16(POLLIN), revents: 0)
            guard poll(&waiting, 1, Int32(left * 1000) + 1) > 0 else { continue }
            var piece = [UInt8](repeating: 0, count: 65_536)
            let count = read(socket, &piece, piece.count)
            guard count > 0 else { return nil }
            pending += piece[..<count]
        }
    }
}

/// The process that probes of one user are forked from: Python starts once for each user, not once
/// for each probe.
private final class ProbeServer: Sendable {
    private static let lock = NSLock()
    nonisolated(unsafe) private static var servers: [User: ProbeServer] = [:]

    private let place: String
    private let child: Child
    /// The server ends with it.
    private let writing: Int32

    /// One end of a connection to a new probe.
    static func connect(as user: User) throws -> Int32 {
        let server = try lock.withLock {
            if let server = servers[user] { return server }
            let server = try ProbeServer(user)
            servers[user] = server
            return server
        }
        return try server.connect()
    }

    private init(_ user: User) throws {
        let environment = TestEnvironment.shared
        let directory = try environment.makeDirectory(TestEnvironment.sharedPrefix + "probes")
        chown(directory, user.userID, user.groupID)
        place = directory + "/socket"
        let (input, output) = (try Child.pipe(), try Child.pipe())
        child = try Child(
            user.prefix + [
                environment.python, "-B", environment.script("probe.py"), place,
            ], environment: environment.variables, input: input.reading, output: output.writing,
            errors: STDERR_FILENO)
        environment.keep(child.process)
        close(input.reading)
        close(output.writing)
        writing = input.writing
        defer { close(output.reading) }
        var byte: UInt8 = 0
        guard read(output.reading, &byte, 1) == 1 else {
            throw SupportError("probes can't be started")
        }
    }

    private func connect() throws -> Int32 {
        let number = socket(
            AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: place.utf8) }
        let connected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(number, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard number >= 0, connected == 0 else {
            Glibc.close(number)
            throw SupportError("no probe: \(String(cString: strerror(errno)))")
        }
        return number
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
