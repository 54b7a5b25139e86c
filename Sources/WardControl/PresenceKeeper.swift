import Synchronization
import WardSystem

/// Looks after a presence on a thread of its own: the runtime directory may lie on a file system
/// that never answers, and the server's thread must not wait for it. A look that takes too long
/// counts as a loss.
///
/// Concurrency: `work` guards what the two threads share; the methods are the server's thread's,
/// but for `request`, which is any thread's.
final class PresenceKeeper: Sendable {
    /// From a change to the look at it: a program that removes a directory with all that is in it
    /// comes to the end first.
    static let settling = Duration.milliseconds(300)
    /// Longest look.
    static let patience = Duration.seconds(5)
    /// Longest wait for the end.
    static let endPatience = Duration.seconds(2)

    private struct Work {
        var isWanted = false
        var isEnding = false
        /// Since when a look is owed, `SystemClock.monotonic`; nil where none is.
        var owed: Duration?
        /// Set where the look under way has taken too long.
        var isGivenUp = false
        /// A listener that was made again, which the server's thread has not taken yet.
        var listener: Int32?
    }

    private let presence: ControlPresence
    private let work = Mutex(Work())
    private let wake = WakeWord()
    private let ended = WakeWord()
    /// Called when a look has come to its end, on this thread.
    private let looked: @Sendable () -> Void

    /// The presence has begun already.
    init(_ presence: ControlPresence, looked: @escaping @Sendable () -> Void) {
        self.presence = presence
        self.looked = looked
        SystemThread.startDetached("ward-presence") { [self] in serve() }
    }

    /// Wants a look, however many are wanted already.
    func request() {
        work.withLock { work in
            work.isWanted = true
            work.owed = work.owed ?? SystemClock.monotonic()
        }
        wake.signal()
    }

    /// Whether the time of the look under way is being taken: then `giveUpIfOverdue` has to be
    /// called now and then.
    var isLooking: Bool { work.withLock { $0.owed != nil && !$0.isGivenUp } }

    func giveUpIfOverdue() {
        let isOverdue = work.withLock { work in
            guard let owed = work.owed, !work.isGivenUp,
                SystemClock.monotonic() > owed + PresenceKeeper.patience
            else { return false }
            work.isGivenUp = true
            return true
        }
        if isOverdue { presence.lose(.lost(reason: "its directory does not answer")) }
    }

    /// The listener that takes the old one's place; nil where the old one stays.
    func takeListener() -> OwnedDescriptor? {
        let number = work.withLock { work in
            defer { work.listener = nil }
            return work.listener
        }
        return number.map { OwnedDescriptor(adopting: $0) }
    }

    /// Removes socket and record, and ends the thread. A directory that does not answer keeps them.
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
        let listener: Int32? = if let made = presence.look() { made.release() } else { nil }
        work.withLock { work in
            work.owed = work.isWanted ? SystemClock.monotonic() : nil
            work.isGivenUp = false
            if let listener {
                if let older = work.listener { Syscall.close(older) }
                work.listener = listener
            }
            // For the signals that `settle` took.
            if work.isWanted || work.isEnding { wake.signal() }
        }
    }

    /// Waits until a change has come to its end. A socket whose place was taken is made again
    /// without a wait.
    private func settle() {
        let end = SystemClock.monotonic() + PresenceKeeper.settling
        while !presence.isReplaced, !work.withLock({ $0.isEnding }) {
            let left = end - SystemClock.monotonic()
            if left <= .zero { return }
            wake.wait(timeout: left)
        }
    }
}
