import Glibc
import WardControl
import WardSystem

/// Waits until the host of a connection is gone, or the device ends the connection.
///
/// Every wait has a bound or ends with one of these.
final class HostWatch {
    enum Ending {
        case hostIsGone(String)
        case endedByDevice(String)
        case lost(ControlError)
    }

    /// The time between two heartbeats, in milliseconds.
    static let beatMilliseconds: Int64 = 100

    private let client: ControlClient
    private var watched: [Int32]
    private var beats: Heartbeat?

    /// `heartbeat`: the longest time for an answer; nil for no heartbeat.
    init(client: ControlClient, watched: [Int32], heartbeat: Duration?) {
        self.client = client
        self.watched = watched
        beats = heartbeat.map { Heartbeat(patience: $0) }
    }

    func run() -> Ending {
        // Poll(2) and write(2) report a reader that is gone; no signal is needed.
        signal(SIGPIPE, SIG_IGN)
        if beats != nil { _ = fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK) }
        while true {
            if let ending = step() { return ending }
        }
    }

    private func step() -> Ending? {
        let now = SystemClock.sinceBoot()
        if let why = beats?.beat(at: now, send: HostWatch.say) { return .hostIsGone(why) }
        var requests = [
            pollfd(fd: client.pollDescriptor, events: Int16(POLLIN), revents: 0),
            // No events requested: poll reports POLLERR and POLLHUP anyway when the reader is gone.
            pollfd(fd: 1, events: 0, revents: 0),
            pollfd(fd: beats == nil ? -1 : 0, events: Int16(POLLIN), revents: 0),
        ]
        for descriptor in watched {
            requests.append(pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0))
        }
        let timeout = client.hasUnreadAnswer ? 0 : beats?.timeout(at: now) ?? -1
        _ = requests.withUnsafeMutableBufferPointer {
            try? Syscall.poll($0, timeoutMilliseconds: timeout)
        }
        if requests[0].revents != 0 || client.hasUnreadAnswer {
            do throws(ControlError) {
                if case .ended(let reason) = try client.hostNotice() {
                    return .endedByDevice(reason)
                }
            } catch {
                return .lost(error)
            }
        }
        if requests[1].revents & Int16(POLLERR | POLLHUP | POLLNVAL) != 0 {
            return .hostIsGone("nobody reads what this says any more")
        }
        if requests[2].revents != 0, !receive() { return .hostIsGone("the host has hung up") }
        for request in requests.dropFirst(3) where request.revents != 0 {
            if hasEnded(request) {
                return .hostIsGone("descriptor \(request.fd) has come to its end")
            }
        }
        return nil
    }

    /// Returns false where no process reads any more. A full pipe is not an end: that beat gets no
    /// answer.
    private static func say(_ line: [UInt8]) -> Bool {
        write(1, line, line.count) >= 0 || errno == EAGAIN || errno == EINTR
    }

    /// Reads answers; returns false at their end.
    private func receive() -> Bool {
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = read(0, &bytes, bytes.count)
        if count > 0 { beats?.take(Array(bytes[..<count])) }
        return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN))
    }

    /// Whether the watched descriptor has ended. Its data is ignored.
    private func hasEnded(_ request: pollfd) -> Bool {
        if request.revents & Int16(POLLNVAL) != 0 { return true }
        if request.revents & Int16(POLLIN) == 0 { return true }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = read(request.fd, &bytes, bytes.count)
        return count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)
    }
}

/// Lines that the host must send back unchanged.
///
/// Each is a random number, so an answer proves that the host has received it.
struct Heartbeat {
    private let patience: Duration
    private var next = Duration.zero
    /// Lines without an answer yet, the oldest first.
    private var waiting: [(line: [UInt8], at: Duration)] = []
    private var received: [UInt8] = []

    init(patience: Duration) { self.patience = patience }

    /// Sends a line when it is due. Returns the reason where the host is gone. `send` returns false
    /// where no process reads.
    mutating func beat(at now: Duration, send: ([UInt8]) -> Bool) -> String? {
        if let oldest = waiting.first, now - oldest.at >= patience {
            return "the host does not answer any more"
        }
        guard now >= next else { return nil }
        next = now + .milliseconds(HostWatch.beatMilliseconds)
        let line = Array(HexSecret.text(SystemRandom.bytes(8)).utf8)
        waiting.append((line, now))
        return send(line + [UInt8(ascii: "\n")]) ? nil : "nobody reads what this says any more"
    }

    /// Milliseconds until the next action.
    func timeout(at now: Duration) -> Int32 {
        var due = next
        if let oldest = waiting.first { due = min(due, oldest.at + patience) }
        let left = max(.zero, due - now)
        return Int32(clamping: Int64((left / .milliseconds(1)).rounded(.up)))
    }

    /// Takes answers. An answer to one line also confirms those before it; other text is ignored.
    mutating func take(_ bytes: [UInt8]) {
        received += bytes
        while let end = received.firstIndex(of: UInt8(ascii: "\n")) {
            let line = Array(received[..<end])
            received.removeSubrange(...end)
            if let index = waiting.firstIndex(where: { $0.line == line }) {
                waiting.removeSubrange(...index)
            }
        }
        // Too long for one of our lines.
        if received.count > 4096 { received = [] }
    }
}
