import CWardLinux
import Glibc
import Synchronization

/// Runs jobs one after another on a thread of its own: for calls that block, away from the workers
/// and from Swift's cooperative pool.
///
/// It takes no descriptor, so a program that uses all of them up can't stop it (prlimit(2)).
///
/// Concurrency: any thread. The mutex of `state` guards the jobs. It is held while a thread starts,
/// and never while a job runs.
public final class SerialQueue: Sendable {
    public typealias Job = @Sendable () -> Void

    /// When the thread starts.
    public enum Start: Sendable {
        /// With the queue. The program can't go on without the thread, which stays until `end`.
        case atOnce
        /// With the first job. After a minute without jobs the thread ends, and the next job starts
        /// another. If no thread can be started, jobs wait until `add` or `retry` starts one.
        case onDemand
    }

    private struct State {
        var waiting: [Job] = []
        /// The thread that runs a job: the queue's own, or one in `drain`.
        var runner: pthread_t?
        var hasThread = false
        var hasEnded = false
    }

    private static let longestIdleTime = Duration.seconds(60)

    private let limit: Int
    private let longestIdleTime: Duration?
    /// Starts a thread; false where that can't be done.
    private let startThread: @Sendable (_ body: @escaping Job) -> Bool
    private let state: Mutex<State>
    /// Signalled after each change of the state that a thread may wait for.
    private let changes = FutexWord()

    /// `name`: at most 15 bytes, shown by `ps -L`. `limit`: the most jobs that wait, without the
    /// job that runs.
    public convenience init(
        _ name: String, limit: Int = .max, starts: Start = .onDemand,
        stackBytes: Int = SystemThread.stackBytes
    ) {
        self.init(limit: limit, starts: starts) { body in
            guard let thread = try? SystemThread(name, stackBytes: stackBytes, body) else {
                return false
            }
            thread.detach()
            return true
        }
    }

    /// As above, with threads that `startThread` starts. For tests.
    init(
        limit: Int, starts: Start, longestIdleTime: Duration = SerialQueue.longestIdleTime,
        startThread: @escaping @Sendable (_ body: @escaping Job) -> Bool
    ) {
        self.limit = limit
        self.longestIdleTime = starts == .onDemand ? longestIdleTime : nil
        self.startThread = startThread
        state = Mutex(State(hasThread: starts == .atOnce))
        if starts == .atOnce, !startThread({ self.serve() }) {
            preconditionFailure("no thread can be started")
        }
    }

    // MARK: Jobs

    /// Adds a job after all others. False where `limit` jobs wait (unless `always`), or after
    /// `end`. With `needsThread`, false also where no thread can be started.
    @discardableResult
    public func add(
        always: Bool = false, needsThread: Bool = false, _ job: @escaping Job
    ) -> Bool {
        let isTaken = state.withLock { state in
            guard !state.hasEnded, always || state.waiting.count < limit else { return false }
            ensureThread(&state)
            guard state.hasThread || !needsThread else { return false }
            state.waiting.append(job)
            return true
        }
        if isTaken { changes.signalAll() }
        return isTaken
    }

    /// Tries again to start the thread if jobs wait without one. For callers that wait for a job.
    public func retry() {
        state.withLock { state in
            if !state.waiting.isEmpty { ensureThread(&state) }
        }
    }

    /// Drops all waiting jobs.
    public func discardWaiting() {
        state.withLock { $0.waiting = [] }
        changes.signalAll()
    }

    /// Waits until no job waits or runs. Runs them here if there is no thread.
    public func drain() {
        while true {
            var job: Job?
            changes.wait {
                state.withLock { state in
                    if !state.hasThread { job = take(&state) }
                    return job != nil || (state.waiting.isEmpty && state.runner == nil)
                }
            }
            guard job != nil else { return }
            run(&job)
        }
    }

    /// Takes no other jobs, and returns when the waiting ones are done and the thread has nothing
    /// left to do. In a job of this queue it can't wait for them, and returns at once.
    public func end() {
        let isOwnJob = state.withLock { state in
            state.hasEnded = true
            return state.runner == pthread_self()
        }
        changes.signalAll()
        if isOwnJob { return }
        drain()
        changes.wait { state.withLock { !$0.hasThread } }
    }

    // MARK: The thread

    private func ensureThread(_ state: inout State) {
        if !state.hasThread { state.hasThread = startThread { self.serve() } }
    }

    /// Takes the next job, for `run`. Nil where none waits, or another one runs.
    private func take(_ state: inout State) -> Job? {
        guard state.runner == nil, !state.waiting.isEmpty else { return nil }
        state.runner = pthread_self()
        return state.waiting.removeFirst()
    }

    /// Runs a job, and lets go of what it holds before another thread can see that it is done.
    private func run(_ job: inout Job?) {
        job?()
        job = nil
        ward_scrub_thread()
        state.withLock { $0.runner = nil }
        changes.signalAll()
    }

    private func serve() {
        while true {
            var job = next()
            guard job != nil else { break }
            run(&job)
        }
        changes.signalAll()
    }

    /// Waits for a job and takes it. Nil where the thread has to end.
    private func next() -> Job? {
        let idleEnd = longestIdleTime.map { SystemClock.monotonic() + $0 }
        var job: Job?
        changes.wait(lookingEvery: longestIdleTime) {
            let isIdle = idleEnd.map { SystemClock.monotonic() >= $0 } ?? false
            return state.withLock { state in
                job = take(&state)
                guard job == nil, state.runner == nil, isIdle || state.hasEnded else {
                    return job != nil
                }
                state.hasThread = false
                return true
            }
        }
        return job
    }
}
