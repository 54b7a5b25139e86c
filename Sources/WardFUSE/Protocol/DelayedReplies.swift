import Glibc
import Synchronization
import WardSystem
import WardVolume

/// Sends errors some time after their request was served, so that a program that retries at once
/// retries less often.
///
/// At the device a thread of its own sends them, so no worker is held up; it starts with the first
/// delayed error. With a ring only the worker's own thread may reply. The worker waits itself, for
/// as long as another worker waits for requests of its CPU.
final class DelayedReplies<Channel: ReplyChannel>: @unchecked Sendable {
    // Sendable: all mutable state is behind the mutex.
    private struct Reply {
        let due: UInt64
        let generation: UInt64
        let unique: UInt64
        let error: Int32
        let channel: Channel
    }

    private struct State {
        var replies: [Reply] = []
        var thread: SystemThread?
        var isEnding = false
    }

    /// Further errors are sent at once: a program may have any number of threads.
    private static var mostReplies: Int { 4096 }
    /// The longest time for which a waiting ring worker does not look whether it is needed.
    private static var lookNanoseconds: UInt64 { 2_000_000 }

    private let refusals: Refusals
    private let state = Mutex(State())

    init(_ refusals: Refusals) { self.refusals = refusals }

    /// Sends the error after `nanoseconds`, or when the gate changes.
    func complete(_ unique: UInt64, error: Int32, _ channel: Channel, after nanoseconds: UInt64) {
        let generation = refusals.generation
        let due = SystemClock.nanoseconds() &+ nanoseconds
        if !Channel.isForAnyThread {
            wait(until: due, generation, channel)
            return channel.complete(unique, error: error)
        }
        let reply = Reply(
            due: due, generation: generation, unique: unique, error: error,
            channel: channel.elsewhere)
        let isTaken = state.withLock { state in
            guard !state.isEnding, state.replies.count < DelayedReplies.mostReplies else {
                return false
            }
            if state.thread == nil {
                state.thread = try? SystemThread("ward-refused") { self.work() }
            }
            guard state.thread != nil else { return false }
            state.replies.append(reply)
            return true
        }
        guard isTaken else { return channel.complete(unique, error: error) }
        refusals.wake()
    }

    /// Waits on the serving thread.
    private func wait(until due: UInt64, _ generation: UInt64, _ channel: Channel) {
        while channel.hasCompany {
            let word = refusals.word.value
            let now = SystemClock.nanoseconds()
            guard refusals.generation == generation, now < due else { return }
            refusals.word.wait(
                while: word, nanoseconds: Int(min(due &- now, DelayedReplies.lookNanoseconds)))
        }
    }

    private func work() {
        while true {
            let word = refusals.word.value
            let generation = refusals.generation
            let now = SystemClock.nanoseconds()
            let (ready, next, isEnding) = state.withLock { state in
                func isReady(_ reply: Reply) -> Bool {
                    state.isEnding || reply.due <= now || reply.generation != generation
                }
                let ready = state.replies.filter(isReady)
                state.replies.removeAll(where: isReady)
                return (ready, state.replies.map(\.due).min(), state.isEnding)
            }
            for reply in ready { reply.channel.complete(reply.unique, error: reply.error) }
            if isEnding { return }
            refusals.word.wait(while: word, nanoseconds: next.map { Int($0 &- now) })
        }
    }

    /// Sends the errors that are left, and ends the thread. No call of `complete` may follow.
    func end() {
        let thread = state.withLock { state in
            state.isEnding = true
            defer { state.thread = nil }
            return state.thread
        }
        refusals.wake()
        thread?.join()
    }
}
