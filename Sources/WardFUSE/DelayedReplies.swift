import Glibc
import Synchronization
import WardSystem
import WardVolume

/// Errors that are told a while after their request was served, so that whoever asks again at once
/// asks less often.
///
/// At the device a thread of its own tells them, which begins with the first one, and no worker is
/// held up. With a ring, whose replies are its own thread's, the worker waits itself, as long as
/// another one waits for the requests of its CPU.
final class DelayedReplies<Channel: ReplyChannel>: @unchecked Sendable {
    // Sendable: what is not constant is behind the mutex.
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

    /// More are answered at once: a program may have as many threads as it likes.
    private static var mostReplies: Int { 4096 }
    /// How long a worker with a ring may not see that it is needed.
    private static var lookNanoseconds: UInt64 { 2_000_000 }

    private let refusals: Refusals
    private let state = Mutex(State())

    init(_ refusals: Refusals) { self.refusals = refusals }

    /// Tells the error in so many nanoseconds, or when the gate changes.
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

    /// On the thread that serves.
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

    /// Tells what is left, and ends the thread. Nothing may come after.
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
