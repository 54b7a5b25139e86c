import CWardLinux
import Glibc
import WardSystem

/// Wakes a thread that waits in poll(2): an eventfd(2).
final class WakeDescriptor: Sendable {
    let rawValue: Int32

    init() {
        rawValue = eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK))
        precondition(rawValue >= 0, "no descriptor left to start with")
    }

    deinit { Syscall.close(rawValue) }

    func signal() {
        var one: UInt64 = 1
        _ = write(rawValue, &one, 8)
    }

    /// Forgets the signals so far.
    func clear() {
        var count: UInt64 = 0
        _ = read(rawValue, &count, 8)
    }

    /// Waits for a signal and forgets it; false where `timeout` came first.
    @discardableResult
    func wait(timeout: Duration? = nil) -> Bool {
        var request = pollfd(fd: rawValue, events: Int16(POLLIN), revents: 0)
        let milliseconds = timeout.map { Int32(clamping: $0.wholeMilliseconds) } ?? -1
        let ready = withUnsafeMutablePointer(to: &request) {
            try? Syscall.poll(
                UnsafeMutableBufferPointer(start: $0, count: 1), timeoutMilliseconds: milliseconds)
        }
        clear()
        return ready == 1
    }
}

extension Duration {
    /// Milliseconds, rounded up so that a wait is never too short.
    var wholeMilliseconds: Int64 {
        components.seconds * 1000
            + (components.attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
    }

    var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) / 1e18 }
}
