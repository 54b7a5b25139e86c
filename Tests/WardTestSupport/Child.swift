import Foundation

/// The result of a finished program.
package struct Finished: Sendable {
    package let status: Int32
    package let output: String
    package let errors: String
    package let timedOut: Bool

    package var succeeded: Bool { status == 0 && !timedOut }
    /// The exit status and both streams, for the message of a failed expectation.
    package var everything: String {
        "exit \(status)\(timedOut ? ", timed out" : "")\n\(output)\(errors)".trimmingCharacters(
            in: .newlines)
    }
}

/// A program running in a process group of its own, with its streams in files.
///
/// Files, not pipes: a daemon that a program leaves behind may hold the streams open, and must not
/// hold up the test.
package final class Child: @unchecked Sendable {
    package let process: pid_t
    private var status: Int32?

    /// Starts `arguments[0]`, found in `PATH`, with only `environment` and nothing of this
    /// process's environment.
    package init(
        _ arguments: [String], environment: [String: String], input: Int32? = nil,
        output: Int32? = nil, errors: Int32? = nil
    ) throws {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (stream, descriptor) in [(Int32(0), input), (1, output), (2, errors)] {
            if let descriptor {
                posix_spawn_file_actions_adddup2(&actions, descriptor, stream)
            } else {
                posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0)
            }
        }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // Signals as for a program at a terminal: the test runner may ignore some.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(
            &attributes,
            Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

        var vector: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        var variables: [UnsafeMutablePointer<CChar>?] =
            environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { (vector + variables).forEach { free($0) } }
        var child: pid_t = 0
        let result = Self.spawning.withLock {
            posix_spawnp(&child, arguments[0], &actions, &attributes, &vector, &variables)
        }
        guard result == 0 else {
            throw SupportError("can't start \(arguments[0]): \(String(cString: strerror(result)))")
        }
        process = child
    }

    /// Waits until the program ends or `seconds` times the run's patience pass; nil after a
    /// time-out.
    package func wait(seconds: Double) -> Int32? {
        let deadline = Date(timeIntervalSinceNow: seconds * TestEnvironment.patience)
        var pause: UInt32 = 200
        while status == nil {
            var raw: Int32 = 0
            let reaped = waitpid(process, &raw, WNOHANG)
            if reaped == process {
                // As a shell counts: the exit code, or 128 plus the signal.
                status = raw & 0x7f == 0 ? (raw >> 8) & 0xff : 128 + (raw & 0x7f)
            } else if reaped < 0 && errno != EINTR {
                status = -1
            } else if Date() > deadline {
                return nil
            } else {
                usleep(pause)
                pause = min(pause * 2, 5_000)
            }
        }
        return status
    }

    /// Kills the program and everything in its process group.
    package func kill() {
        guard status == nil else { return }
        _ = Glibc.kill(-process, SIGKILL)
        if wait(seconds: 5) == nil {
            FileHandle.standardError.write(Data("process \(process) outlives SIGKILL\n".utf8))
        }
    }

    deinit { kill() }

    /// Held while a program starts, and while a pipe is made that the program must not inherit.
    private static let spawning = NSLock()

    /// A pipe that a child inherits only if the caller passes it explicitly.
    package static func pipe() throws -> (reading: Int32, writing: Int32) {
        try spawning.withLock {
            var ends: [Int32] = [0, 0]
            guard Glibc.pipe(&ends) == 0 else { throw SupportError("no more pipes") }
            for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            return (ends[0], ends[1])
        }
    }

    /// Runs a program to its end, for `seconds` times the run's patience at most.
    package static func run(
        _ arguments: [String], environment: [String: String], input: String = "",
        seconds: Double = 60
    ) throws -> Finished {
        let streams = try (0..<3).map { _ in try temporaryFile() }
        defer { streams.forEach { close($0) } }
        if !input.isEmpty {
            _ = input.withCString { pwrite(streams[0], $0, strlen($0), 0) }
        }
        let child = try Child(
            arguments, environment: environment, input: streams[0], output: streams[1],
            errors: streams[2])
        let status = child.wait(seconds: seconds)
        if status == nil { child.kill() }
        return Finished(
            status: status ?? -1, output: contents(of: streams[1]),
            errors: contents(of: streams[2]),
            timedOut: status == nil)
    }

    /// Copies a program to a place where any user may run it, by install(1).
    ///
    /// `FileManager.copyItem` writes through a descriptor that programs started meanwhile inherit.
    /// While one of those runs, execve(2) of the copy fails with ETXTBSY.
    package static func copyProgram(_ source: String, to target: String) throws {
        let copied = try run(
            ["install", "-m", "0755", "--", source, target],
            environment: ["PATH": "/usr/bin:/bin"], seconds: 300)
        guard copied.succeeded else { throw SupportError("can't copy: \(copied.everything)") }
    }

    private static func temporaryFile() throws -> Int32 {
        var template = Array("/tmp/ward-tests-stream-XXXXXX".utf8CString)
        let descriptor = mkstemp(&template)
        guard descriptor >= 0 else { throw SupportError("can't make a temporary file") }
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        unlink(template)
        return descriptor
    }

    private static func contents(of descriptor: Int32) -> String {
        var bytes: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = pread(descriptor, &piece, piece.count, off_t(bytes.count))
            guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
            bytes += piece[..<count]
        }
    }
}

/// A failure of the tests' own machinery.
package struct SupportError: Error, CustomStringConvertible {
    package let description: String
    package init(_ description: String) { self.description = description }
}
