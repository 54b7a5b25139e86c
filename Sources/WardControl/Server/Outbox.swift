import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Carries answers from any thread to the server's thread.
///
/// Concurrency: any thread; the mutex of `state` is held for a copy at most.
final class Outbox: Sendable {
    /// A client with more unread bytes than this is dropped.
    static let maximumBytes = 256 * 1024

    /// Bytes and marks for one client that the server has not taken yet.
    struct Pending {
        var bytes: [UInt8] = []
        /// The call under way was answered.
        var isFinished = false
        var overflowed = false
    }

    private struct State {
        /// The key is a live client.
        var pending: [UInt64: Pending] = [:]
        /// For each live client: bytes that the server took and has not sent yet.
        var unsentBytes: [UInt64: Int] = [:]
        /// The closures to run when clients are gone.
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

    /// Runs `body` once the client is gone; at once where it is gone already. Replaces an earlier
    /// closure.
    func whenGone(_ client: UInt64, _ body: @escaping @Sendable () -> Void) {
        let isLive = state.withLock { state in
            guard state.pending[client] != nil else { return false }
            state.endings[client] = body
            return true
        }
        if !isLive { body() }
    }

    func isLive(_ client: UInt64) -> Bool { state.withLock { $0.pending[client] != nil } }

    /// Adds bytes of an answer. False where the client is gone or has too much unread.
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

    /// Takes the bytes and marks added since the last call.
    func take(_ client: UInt64) -> Pending {
        state.withLock { state in
            guard let pending = state.pending[client] else { return Pending() }
            state.pending[client] = Pending()
            state.unsentBytes[client, default: 0] += pending.bytes.count
            return pending
        }
    }

    /// Notes the number of bytes that the socket did not take.
    func noteUnsent(_ bytes: Int, for client: UInt64) {
        state.withLock { state in
            if state.pending[client] != nil { state.unsentBytes[client] = bytes }
        }
    }

    /// The bytes that the client has not read and the socket did not take.
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
