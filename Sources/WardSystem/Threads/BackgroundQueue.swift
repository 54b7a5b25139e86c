import CWardLinux
import Glibc

/// Runs closures one after another on a thread of its own: for calls that block, away from the
/// workers and from Swift's cooperative pool.
///
/// The thread starts with the first closure. If it can't be started, that is no error: the next
/// closure tries again.
public final class BackgroundQueue: @unchecked Sendable {
    // Sendable: `mutex` guards everything below.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var waiting: [@Sendable () -> Void] = []
    private var isRunning = false
    private var isBusy = false
    private let name: String
    private let stackBytes: Int

    /// `name`: at most 15 bytes, shown by `ps -L`.
    public init(name: String, stackBytes: Int = SystemThread.stackBytes) {
        self.name = name
        self.stackBytes = stackBytes
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(condition, nil)
    }

    deinit {
        pthread_cond_destroy(condition)
        pthread_mutex_destroy(mutex)
        condition.deallocate()
        mutex.deallocate()
    }

    /// Runs `body` on the thread, after the closures before it.
    public func run(_ body: @escaping @Sendable () -> Void) {
        pthread_mutex_lock(mutex)
        waiting.append(body)
        startThread()
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    /// Tries again to start the thread if closures wait without one. For callers that wait for
    /// them.
    public func retry() {
        pthread_mutex_lock(mutex)
        if !waiting.isEmpty { startThread() }
        pthread_mutex_unlock(mutex)
    }

    /// Requires: the mutex is held.
    private func startThread() {
        guard !isRunning,
            let thread = try? SystemThread(name, stackBytes: stackBytes, { self.serve() })
        else { return }
        thread.detach()
        isRunning = true
    }

    /// Waits until no closure is left. If no thread could be started, runs them here.
    public func drain() {
        pthread_mutex_lock(mutex)
        while !waiting.isEmpty || isBusy {
            if isRunning || isBusy { pthread_cond_wait(condition, mutex) } else { runNext() }
        }
        pthread_mutex_unlock(mutex)
    }

    /// Requires: the mutex is held; it is held again at the end.
    private func runNext() {
        let body = waiting.removeFirst()
        isBusy = true
        pthread_mutex_unlock(mutex)
        body()
        ward_scrub_thread()
        pthread_mutex_lock(mutex)
        isBusy = false
        pthread_cond_broadcast(condition)
    }

    private func serve() {
        pthread_mutex_lock(mutex)
        while true {
            // An idle thread ends after a minute; the next closure starts another.
            if waiting.isEmpty || isBusy {
                var until = timespec()
                clock_gettime(CLOCK_REALTIME, &until)
                until.tv_sec += 60
                if pthread_cond_timedwait(condition, mutex, &until) == ETIMEDOUT, waiting.isEmpty,
                    !isBusy
                {
                    isRunning = false
                    pthread_mutex_unlock(mutex)
                    return
                }
                continue
            }
            runNext()
        }
    }
}
