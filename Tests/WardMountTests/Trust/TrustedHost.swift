import Foundation
import Testing

/// A host that a volume trusts: its record, and its connections.
final class TrustedHost {
    let volume: MountedVolume
    let name: String
    /// The host's record, a file of the volume's user.
    let record: String

    /// Makes the volume, which is unlocked, trust a new host.
    init(_ volume: MountedVolume, _ name: String = "laptop") throws {
        self.volume = volume
        self.name = name
        record = volume.directory + "/home/\(name).trust"
        let added = try volume.ward(
            "trust", "add", volume.mountPoint, name, "--out", record, "--passcode-file",
            volume.passcodeFile)
        guard added.succeeded else { throw SupportError("trust add: \(added.everything)") }
    }

    /// Connects in a child process, and waits until A and B are open.
    func connect() throws -> Connection {
        try Connection(
            volume,
            [
                TestEnvironment.shared.ward, "trust", "connect", volume.mountPoint, "--trust-file",
                record,
            ])
    }

    /// The result of connecting when it is refused.
    func refused() throws -> Finished {
        try volume.ward(
            "trust", "connect", volume.mountPoint, "--trust-file", record, seconds: 20)
    }

    /// A running `ward trust connect`, or a command that runs one.
    final class Connection {
        let child: Child
        private let output: Int32
        private let errors: String
        private var text = ""

        /// `input`: its stdin. `ready`: the text on stdout or stderr that it prints when the volume
        /// is open for it.
        init(
            _ volume: MountedVolume, _ command: [String], input: Int32? = nil,
            ready: String = "A and B stay open", on stream: Stream = .output
        ) throws {
            let pipe = try Child.pipe()
            errors = volume.directory + "/home/errors-\(UUID().uuidString)"
            let file = open(errors, O_WRONLY | O_CREAT | O_APPEND, 0o666)
            guard file >= 0 else { throw SupportError("no file for what it says") }
            child = try Child(
                volume.user.prefix + command, environment: volume.environment, input: input,
                output: stream == .output ? pipe.writing : nil, errors: file)
            close(file)
            close(pipe.writing)
            output = pipe.reading
            let isReady = try comesTrue(within: 30) {
                if said(ready, on: stream) { return true }
                guard let status = child.wait(seconds: 0) else { return false }
                throw SupportError("it ended with \(status): \(text)\(complaints)")
            }
            guard isReady else { throw SupportError("never connected: \(text)\(complaints)") }
        }

        enum Stream { case output, errors }

        private func said(_ ready: String, on stream: Stream) -> Bool {
            if stream == .errors { return complaints.contains(ready) }
            var waiting = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            if poll(&waiting, 1, 0) > 0 {
                var piece = [UInt8](repeating: 0, count: 4096)
                let count = read(output, &piece, piece.count)
                if count > 0 { text += String(decoding: piece[..<count], as: UTF8.self) }
            }
            return text.contains(ready)
        }

        /// Everything that it has written to stderr.
        var complaints: String { (try? String(contentsOfFile: errors, encoding: .utf8)) ?? "" }

        func signal(_ number: Int32) { Glibc.kill(child.process, number) }

        /// Waits for its end: the exit status, or 128 plus the signal that killed it.
        func end(seconds: Double = 20) -> Int32? { child.wait(seconds: seconds) }

        deinit {
            child.kill()
            close(output)
        }
    }
}

extension MountedVolume {
    /// The result of `ward status --json`.
    func status() throws -> [String: Any] {
        let done = try ward("status", mountPoint, "--json")
        let object = try JSONSerialization.jsonObject(with: Data(done.output.utf8))
        return try #require(object as? [String: Any], "\(done.everything)")
    }

    func state() throws -> String { try status()["state"] as? String ?? "" }

    /// Waits for this state.
    func reaches(_ state: String, seconds: Double = 10) throws -> Bool {
        try comesTrue(within: seconds) { try self.state() == state }
    }

    /// The result of `ward trust list --json`, by name.
    func trusted() throws -> [String: [String: Any]] {
        let done = try ward("trust", "list", mountPoint, "--json")
        var hosts: [String: [String: Any]] = [:]
        for line in done.output.split(separator: "\n") {
            let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
            if let object, let name = object["name"] as? String { hosts[name] = object }
        }
        return hosts
    }
}

extension Probe {
    /// Seconds from now until reading the file is refused; nil after ten seconds.
    func secondsUntilRefused(_ path: String) -> Double? {
        let start = Date()
        while true {
            let outcome = readFile(path)
            let passed = Date().timeIntervalSince(start)
            if outcome == .eperm { return passed }
            if passed > 10 * TestEnvironment.patience { return nil }
            // The time is what is measured, so the pauses do not grow.
            usleep(2_000)
        }
    }
}
