import CWardLinux
import Glibc

/// A thread of one's own that runs closures one after another: for calls that block, away from request threads and from
/// Swift's cooperative pool. The thread starts with the first closure.
///
/// Where there can't be another thread (a limit that other programs use up) closures wait until one can be started: at the
/// next `run`, at `nudge`, or in `drain`.
public final class BackgroundQueue: @unchecked Sendable {
    // Sendable: everything below is guarded by `mutex`.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var waiting: [@Sendable () -> Void] = []
    private var isRunning = false
    private var isBusy = false
    private let name: String
    /// `SystemThread`'s; tests have theirs.
    private let startThread: (String, @escaping @Sendable () -> Void) throws -> SystemThread

    /// `name`: at most 15 bytes, what `ps -L` shows.
    public convenience init(name: String) {
        self.init(name: name) { try SystemThread($0, $1) }
    }

    init(
        name: String,
        startThread: @escaping (String, @escaping @Sendable () -> Void) throws -> SystemThread
    ) {
        self.name = name
        self.startThread = startThread
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    public func run(_ body: @escaping @Sendable () -> Void) {
        pthread_mutex_lock(mutex)
        waiting.append(body)
        _ = startWhereNeeded()
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    /// Starts the thread where closures wait because there could be none.
    public func nudge() {
        pthread_mutex_lock(mutex)
        _ = startWhereNeeded()
        pthread_mutex_unlock(mutex)
    }

    /// Waits until nothing is left to run; without a thread to be had, runs it here.
    public func drain() {
        pthread_mutex_lock(mutex)
        while !waiting.isEmpty || isBusy {
            if startWhereNeeded() {
                pthread_cond_wait(condition, mutex)
            } else {
                runFirst()
            }
        }
        pthread_mutex_unlock(mutex)
    }

    /// False where closures wait and no thread can be started. The mutex is held.
    private func startWhereNeeded() -> Bool {
        guard !isRunning, !waiting.isEmpty else { return true }
        guard let thread = try? startThread(name, { self.serve() }) else { return false }
        thread.detach()
        isRunning = true
        return true
    }

    private func serve() {
        pthread_mutex_lock(mutex)
        while true {
            // An idle thread ends after a minute; the next closure starts another.
            if waiting.isEmpty {
                var until = timespec()
                clock_gettime(CLOCK_REALTIME, &until)
                until.tv_sec += 60
                if pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT, waiting.isEmpty {
                    isRunning = false
                    pthread_mutex_unlock(mutex)
                    return
                }
                continue
            }
            runFirst()
        }
    }

    /// The mutex is held, but not while the closure runs.
    private func runFirst() {
        let body = waiting.removeFirst()
        isBusy = true
        pthread_mutex_unlock(mutex)
        body()
        ward_scrub_thread()
        pthread_mutex_lock(mutex)
        isBusy = false
        pthread_cond_broadcast(condition)
    }
}
