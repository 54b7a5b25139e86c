import Synchronization
import WardSystem

/// Keeps a presence on a thread of its own. The runtime directory may lie on a file system that
/// never answers, and the server's thread must not wait for it. A look that takes too long counts
/// as a loss.
///
/// Concurrency: the mutex `work` guards what both threads share. The server's thread calls the
/// methods; any thread may call `request`.
final class PresenceKeeper: Sendable {
    /// Time between a change and the look: a program that removes a whole directory should finish
    /// first.
    static let settling = Duration.milliseconds(300)
    /// The longest look before it counts as a loss.
    static let patience = Duration.seconds(5)
    /// The longest wait for the keeper's end.
    static let endPatience = Duration.seconds(2)

    private struct Work {
        var isWanted = false
        var isEnding = false
        /// The time of the first request without a finished look, `SystemClock.monotonic`; nil
        /// without one.
        var owed: Duration?
        /// The look under way has taken too long.
        var isGivenUp = false
        /// A new listener that the server's thread has not taken yet.
        var listener: Int32?
    }

    private let presence: ControlPresence
    private let work = Mutex(Work())
    private let wake = WakeWord()
    private let ended = WakeWord()
    /// Called after each look, on the keeper's thread.
    private let looked: @Sendable () -> Void

    /// Starts the keeper. The presence has begun already.
    init(_ presence: ControlPresence, looked: @escaping @Sendable () -> Void) {
        self.presence = presence
        self.looked = looked
        SystemThread.startDetached("ward-presence") { [self] in serve() }
    }

    /// Asks for one look; several requests before it make one.
    func request() {
        work.withLock { work in
            work.isWanted = true
            work.owed = work.owed ?? SystemClock.monotonic()
        }
        wake.signal()
    }

    /// Whether a look is being timed: then the server calls `giveUpIfOverdue` now and then.
    var isLooking: Bool { work.withLock { $0.owed != nil && !$0.isGivenUp } }

    func giveUpIfOverdue() {
        work.withLock { work in
            guard let owed = work.owed, !work.isGivenUp,
                SystemClock.monotonic() > owed + PresenceKeeper.patience
            else { return }
            work.isGivenUp = true
            presence.lose(.lost(reason: "its directory does not answer"))
        }
    }

    /// The listener that replaces the old one; nil where the old one stays.
    func takeListener() -> OwnedDescriptor? {
        let number = work.withLock { work in
            defer { work.listener = nil }
            return work.listener
        }
        return number.map { OwnedDescriptor(adopting: $0) }
    }

    /// Removes socket and record, and ends the thread. Leaves them where their directory does not
    /// answer.
    func end() {
        work.withLock { $0.isEnding = true }
        wake.signal()
        _ = ended.wait(timeout: PresenceKeeper.endPatience)
        _ = takeListener()
    }

    // MARK: The keeper's thread

    private func serve() {
        while true {
            wake.wait()
            let (isWanted, isEnding) = work.withLock { work in
                defer { work.isWanted = false }
                return (work.isWanted, work.isEnding)
            }
            if isEnding {
                presence.end()
                ended.signal()
                return
            }
            if isWanted {
                look()
                looked()
            }
        }
    }

    private func look() {
        settle()
        if work.withLock({ $0.isEnding }) { return wake.signal() }
        var isThere = false
        let listener: Int32? = if let made = presence.look(&isThere) { made.release() } else { nil }
        work.withLock { work in
            work.owed = work.isWanted ? SystemClock.monotonic() : nil
            // The server's thread may have given it up at the last moment.
            if work.isGivenUp, isThere { presence.find() }
            work.isGivenUp = false
            if let listener {
                if let older = work.listener { Syscall.close(older) }
                work.listener = listener
            }
            // Signals again, because `settle` may have taken these signals.
            if work.isWanted || work.isEnding { wake.signal() }
        }
    }

    /// Waits until the changes have stopped. A socket whose name another file took is made again at
    /// once.
    private func settle() {
        let end = SystemClock.monotonic() + PresenceKeeper.settling
        while !presence.isReplaced, !work.withLock({ $0.isEnding }) {
            let left = end - SystemClock.monotonic()
            if left <= .zero { return }
            wake.wait(timeout: left)
        }
    }
}
