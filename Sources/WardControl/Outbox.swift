import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Answers on their way from any thread to the server's.
///
/// Concurrency: any thread; `state` is guarded by its mutex, held for a copy at most.
final class Outbox: Sendable {
    /// A client that leaves this much unread is dropped.
    static let maximumBytes = 256 * 1024

    struct Pending {
        var bytes: [UInt8] = []
        /// The call under way was answered.
        var isFinished = false
        var overflowed = false
    }

    private struct State {
        /// By live client.
        var pending: [UInt64: Pending] = [:]
        /// Of each live client: taken by the server, and not sent yet.
        var unsentBytes: [UInt64: Int] = [:]
        /// What is to be done when a client is gone.
        var endings: [UInt64: @Sendable () -> Void] = [:]
    }

    private let state = Mutex(State())
    /// eventfd(2) that wakes the server.
    let wake: Int32

    init() throws(Errno) {
        wake = try Syscall.check { eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) }
    }

    deinit { Syscall.close(wake) }

    func open(_ client: UInt64) { state.withLock { $0.pending[client] = Pending() } }
    func close(_ client: UInt64) {
        let ending = state.withLock { state in
            state.pending[client] = nil
            state.unsentBytes[client] = nil
            return state.endings.removeValue(forKey: client)
        }
        ending?()
    }

    /// Runs `body` once, when the client is gone: now, where it is. Replaces an earlier one.
    func whenGone(_ client: UInt64, _ body: @escaping @Sendable () -> Void) {
        let isLive = state.withLock { state in
            guard state.pending[client] != nil else { return false }
            state.endings[client] = body
            return true
        }
        if !isLive { body() }
    }

    func isLive(_ client: UInt64) -> Bool { state.withLock { $0.pending[client] != nil } }

    /// False where the client is gone or reads nothing.
    func add(_ bytes: [UInt8], for client: UInt64, isLast: Bool) -> Bool {
        let isTaken = state.withLock { state -> Bool in
            guard var pending = state.pending.removeValue(forKey: client) else { return false }
            if pending.bytes.count + bytes.count > Outbox.maximumBytes {
                pending.overflowed = true
            } else {
                pending.bytes += bytes
            }
            if isLast { pending.isFinished = true }
            state.pending[client] = pending
            return !pending.overflowed
        }
        signal()
        return isTaken
    }

    /// What came since the last time.
    func take(_ client: UInt64) -> Pending {
        state.withLock { state in
            guard let pending = state.pending[client] else { return Pending() }
            state.pending[client] = Pending()
            state.unsentBytes[client, default: 0] += pending.bytes.count
            return pending
        }
    }

    /// The server has sent what the socket took.
    func noteUnsent(_ bytes: Int, for client: UInt64) {
        state.withLock { state in
            if state.pending[client] != nil { state.unsentBytes[client] = bytes }
        }
    }

    /// What a client has not read, as far as the socket did not take it.
    func backlogBytes(_ client: UInt64) -> Int {
        state.withLock {
            ($0.pending[client]?.bytes.count ?? 0) + ($0.unsentBytes[client] ?? 0)
        }
    }

    func signal() {
        var one: UInt64 = 1
        _ = write(wake, &one, 8)
    }

    func clearSignal() {
        var count: UInt64 = 0
        _ = read(wake, &count, 8)
    }
}
