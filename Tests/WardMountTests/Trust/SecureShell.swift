import Foundation
import Testing

/// A real sshd on loopback with its own keys and configuration, and a network in between that can
/// be stopped.
///
/// It serves the user that runs these tests: another user's login would need a shell, which
/// `nobody` does not have.
final class SecureShell {
    static let user: User = geteuid() == 0 ? .root : .ordinaryUser

    private let directory: String
    private let server: Child
    private var relay: Child
    private let port: Int
    private let madeSeparationDirectory: Bool

    /// `settings`: lines for sshd_config.
    init(in volume: MountedVolume, settings: [String] = []) throws {
        let program = "/usr/sbin/sshd"
        guard access(program, X_OK) == 0 else {
            throw SupportError("there is no sshd: run `scripts/setup test` (openssh-server)")
        }
        directory = volume.directory + "/ssh"
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true,
            attributes: [.posixPermissions: 0o700])
        // Root's sshd needs this directory to drop its rights; Debian's init script makes it.
        madeSeparationDirectory = geteuid() == 0 && Glibc.mkdir("/run/sshd", 0o755) == 0
        for name in ["host", "client"] {
            let made = try Child.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory + "/" + name],
                environment: volume.environment)
            guard made.succeeded else { throw SupportError("ssh-keygen: \(made.everything)") }
        }
        try FileManager.default.copyItem(
            atPath: directory + "/client.pub", toPath: directory + "/authorized")
        var started: (Child, Int)?
        for _ in 0..<20 where started == nil {
            started = try Self.start(program, directory, volume, settings)
        }
        guard let started else { throw SupportError("sshd does not listen") }
        (server, port) = started
        relay = try Self.network(to: port).0
        relay.kill()
        relayPort = 0
        try startNetwork()
    }

    private(set) var relayPort: Int

    deinit {
        relay.signal(SIGCONT)
        relay.kill()
        server.kill()
        if madeSeparationDirectory { rmdir("/run/sshd") }
    }

    /// Starts sshd on a port that was just free; nil if another program has taken it.
    private static func start(
        _ program: String, _ directory: String, _ volume: MountedVolume, _ settings: [String]
    ) throws -> (Child, Int)? {
        let port = try freePort()
        let configuration = directory + "/sshd_config"
        try
            ([
                "ListenAddress 127.0.0.1", "Port \(port)", "HostKey \(directory)/host",
                "AuthorizedKeysFile \(directory)/authorized", "PidFile none", "StrictModes no",
                "UsePAM no", "PasswordAuthentication no", "PermitRootLogin yes", "LogLevel ERROR",
            ] + settings).joined(separator: "\n").appending("\n")
            .write(toFile: configuration, atomically: false, encoding: .utf8)
        let child = try Child(
            [program, "-D", "-e", "-f", configuration], environment: volume.environment,
            errors: STDERR_FILENO)
        _ = comesTrue(within: 10) { child.wait(seconds: 0) != nil || answers(port) }
        if child.wait(seconds: 0) == nil, answers(port) { return (child, port) }
        child.kill()
        return nil
    }

    private static func withSocket<R>(_ port: Int, _ body: (Int32, UnsafePointer<sockaddr>) -> R)
        -> R
    {
        let number = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(number) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body(number, $0) }
        }
    }

    private static func answers(_ port: Int) -> Bool {
        withSocket(port) { connect($0, $1, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0 }
    }

    private static func freePort() throws -> Int {
        let port = withSocket(0) { number, address -> Int in
            guard bind(number, address, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0 else {
                return 0
            }
            var bound = sockaddr_in()
            var count = socklen_t(MemoryLayout<sockaddr_in>.size)
            withUnsafeMutablePointer(to: &bound) {
                _ = $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    getsockname(number, $0, &count)
                }
            }
            return Int(in_port_t(bigEndian: bound.sin_port))
        }
        guard port > 0 else { throw SupportError("no port is free") }
        return port
    }

    private static func network(to port: Int) throws -> (Child, Int) {
        let environment = TestEnvironment.shared
        let pipe = try Child.pipe()
        let relay = try Child(
            [environment.python, "-B", environment.script("relay.py"), "\(port)"],
            environment: environment.variables, output: pipe.writing, errors: STDERR_FILENO)
        close(pipe.writing)
        defer { close(pipe.reading) }
        var text = ""
        var byte: UInt8 = 0
        while read(pipe.reading, &byte, 1) == 1, byte != 10 {
            text.append(Character(UnicodeScalar(byte)))
        }
        guard let relayPort = Int(text) else { throw SupportError("the relay says '\(text)'") }
        return (relay, relayPort)
    }

    /// Starts a new network after the last one was cut or stopped.
    func startNetwork() throws { (relay, relayPort) = try Self.network(to: port) }
    /// Nothing gets through any more, and neither side is told.
    func stopNetwork() { relay.signal(SIGSTOP) }
    /// Closes every connection on both sides.
    func cutNetwork() { relay.signal(SIGKILL) }
    func resumeNetwork() { relay.signal(SIGCONT) }

    /// The command that runs `ward` with these arguments on the other side, quoted for the shell
    /// there.
    func command(_ volume: MountedVolume, options: [String] = [], _ arguments: [String])
        -> [String]
    {
        let remote =
            ["env"]
            + volume.environment.filter {
                ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "LC_ALL", "NO_COLOR"].contains($0.key)
            }.map { "\($0.key)=\($0.value)" } + [TestEnvironment.shared.ward] + arguments
        return [
            "ssh", "-F", "/dev/null", "-i", directory + "/client", "-p", "\(relayPort)",
            "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
            "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            "-o", "ControlPath=none",
        ] + options + ["127.0.0.1"] + remote
    }
}

extension Child {
    func signal(_ number: Int32) { Glibc.kill(process, number) }
}
