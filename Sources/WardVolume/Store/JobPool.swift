import Synchronization
import WardSystem

/// Runs optional jobs on a few threads of its own, each on the first thread that is free. It drops
/// a job while too many wait. A job that hangs keeps its thread, and holds up no other.
///
/// Concurrency: any thread.
final class JobPool: Sendable {
    typealias Job = @Sendable () -> Void

    private struct State {
        var waiting: [Job] = []
        /// Threads without a job.
        var idle: [Int]
    }

    /// Stack of each thread. Optional jobs must not take memory that required work needs.
    private static let stackBytes = 256 << 10
    private let queues: [SerialQueue]
    private let mostWaiting: Int
    private let state: Mutex<State>

    /// `name`: at most 15 bytes, shown by `ps -L`.
    init(name: String, threads: Int, mostWaiting: Int) {
        queues = (0..<threads).map { _ in
            SerialQueue(name, stackBytes: JobPool.stackBytes)
        }
        self.mostWaiting = mostWaiting
        state = Mutex(State(idle: Array(0..<threads)))
    }

    /// Queues a job; false where it was dropped.
    func run(_ job: @escaping Job) -> Bool {
        let (isTaken, thread): (Bool, Int?) = state.withLock { state in
            guard state.waiting.count < mostWaiting else { return (false, nil) }
            state.waiting.append(job)
            return (true, state.idle.popLast())
        }
        if let thread {
            queues[thread].add { [self] in work(thread) }
        } else {
            // Perhaps no thread was free because none could be started.
            for queue in queues { queue.retry() }
        }
        return isTaken
    }

    private func work(_ thread: Int) {
        while let job = next(for: thread) { job() }
    }

    private func next(for thread: Int) -> Job? {
        state.withLock { state in
            if state.waiting.isEmpty {
                state.idle.append(thread)
                return nil
            }
            return state.waiting.removeFirst()
        }
    }

    /// Waits until no job waits or runs. For tests.
    func drain() {
        repeat {
            for queue in queues { queue.drain() }
        } while state.withLock { $0.idle.count < queues.count || !$0.waiting.isEmpty }
    }
}
