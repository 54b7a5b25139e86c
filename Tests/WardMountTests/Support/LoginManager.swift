import Foundation

/// A private system bus with a login manager on it that obeys the test (`Scripts/logind.py`).
final class LoginManager {
    /// The value for the daemon's `DBUS_SYSTEM_BUS_ADDRESS`.
    let address: String
    private let bus: Child
    private let manager: Child
    private let requests: Int32
    private let replies: Int32

    /// `directory` belongs to the user; so do the login manager's sessions.
    init(as user: User, in directory: String) throws {
        let environment = TestEnvironment.shared
        let socket = directory + "/bus"
        address = "unix:path=" + socket
        let configuration = directory + "/bus.conf"
        try """
        <busconfig>
          <listen>\(address)</listen>
          <auth>EXTERNAL</auth>
          <policy context="default">
            <allow send_destination="*"/> <allow eavesdrop="true"/> <allow own="*"/> <allow user="*"/>
          </policy>
        </busconfig>
        """.write(toFile: configuration, atomically: false, encoding: .utf8)
        chmod(configuration, 0o644)
        bus = try Child(
            user.prefix + ["dbus-daemon", "--nofork", "--config-file", configuration],
            environment: environment.variables)
        guard comesTrue(within: 30, { access(socket, F_OK) == 0 }) else {
            throw SupportError("no message bus: run `scripts/setup test` (dbus-daemon)")
        }
        let packages = try LoginManager.packages(in: directory)
        let down = try Child.pipe()
        let up = try Child.pipe()
        manager = try Child(
            user.prefix + [
                environment.python, environment.script("logind.py"), packages, address,
                "\(user.userID)",
            ], environment: environment.variables, input: down.reading, output: up.writing,
            errors: STDERR_FILENO)
        Glibc.close(down.reading)
        Glibc.close(up.writing)
        requests = down.writing
        replies = up.reading
        let greeting = readLine()
        guard greeting == "ready" else {
            throw SupportError("the login manager says \(greeting ?? "nothing")")
        }
    }

    deinit {
        Glibc.close(requests)
        Glibc.close(replies)
        manager.kill()
        bus.kill()
    }

    /// A copy of the Python packages where an ordinary user can read them.
    private static func packages(in directory: String) throws -> String {
        let packages =
            String(#filePath.dropLast("Tests/WardMountTests/Support/LoginManager.swift".count))
            + ".build-python"
        guard access(packages + "/jeepney/__init__.py", R_OK) == 0 else {
            throw SupportError(
                "the Python package jeepney is not there: run `scripts/setup test`")
        }
        let copy = directory + "/packages"
        try FileManager.default.copyItem(atPath: packages, toPath: copy)
        return copy
    }

    /// Sends a command to `logind.py` and returns its answer.
    func tell(_ command: String) throws -> String {
        let line = Array((command + "\n").utf8)
        guard write(requests, line, line.count) == line.count, let answer = readLine() else {
            throw SupportError("the login manager does not answer to \(command)")
        }
        return answer
    }

    private func readLine(seconds: Double = 30) -> String? {
        let deadline = Date(timeIntervalSinceNow: seconds)
        var line: [UInt8] = []
        while deadline.timeIntervalSinceNow > 0 {
            var waiting = pollfd(fd: replies, events: Int16(POLLIN), revents: 0)
            guard poll(&waiting, 1, 100) > 0 else { continue }
            var byte: UInt8 = 0
            guard read(replies, &byte, 1) == 1 else { return nil }
            if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
            line.append(byte)
        }
        return nil
    }
}
