import CWardLinux
import Glibc
import WardSystem

/// One client of the control server. Belongs to the server's thread.
final class ControlConnection {
    let peer: PeerCredentials
    /// Whether the daemon's own helper is at the other end (`ControlServer.adopt`).
    let isOwn: Bool
    var input = ReceiveBuffer()
    /// A call is under way.
    var isBusy = false
    /// The call under way streams events.
    var isMonitor = false
    /// The call under way is a trusted host's. It lasts as long as its connection.
    var isHost = false
    /// The client closed its end while a call is under way.
    var hasHungUp = false
    /// The buffer `input` holds more than the last message that was dispatched.
    var hasUnseenInput = false
    /// The time of the connect, of the last call or of the last answer.
    var lastActivity = SystemClock.monotonic()

    private let socket: OwnedDescriptor
    private var output: [UInt8] = []
    private var sentBytes = 0

    init(socket: consuming OwnedDescriptor, peer: PeerCredentials, isOwn: Bool = false) {
        self.socket = socket
        self.peer = peer
        self.isOwn = isOwn
    }

    var descriptor: Int32 { socket.rawValue }

    /// Bytes that are not sent yet.
    var outputBytes: Int { output.count - sentBytes }

    /// The next message waits until the answer to the last one has been sent.
    var mayReceive: Bool { !isBusy && outputBytes == 0 }

    var pollRequest: pollfd {
        // Without an event asked for, poll(2) still reports POLLHUP, again and again. So a client
        // that hung up is left out until its call is done.
        if hasHungUp, isBusy { return pollfd(fd: -1, events: 0, revents: 0) }
        var events: Int32 = 0
        if mayReceive { events |= POLLIN }
        if outputBytes > 0 { events |= POLLOUT }
        return pollfd(fd: descriptor, events: Int16(events), revents: 0)
    }

    func queue(_ pending: Outbox.Pending) {
        output += pending.bytes
        if pending.isFinished {
            isBusy = false
            isMonitor = false
            isHost = false
            lastActivity = SystemClock.monotonic()
        }
    }

    /// Sends as much as the socket takes; false where the client is gone.
    func send() -> Bool {
        while outputBytes > 0 {
            let sent = output.withUnsafeBytes {
                Glibc.send(
                    descriptor, $0.baseAddress! + sentBytes, $0.count - sentBytes,
                    Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
            }
            if sent < 0 {
                if errno == EINTR { continue }
                return errno == EAGAIN
            }
            sentBytes += sent
        }
        output = []
        sentBytes = 0
        return true
    }
}
