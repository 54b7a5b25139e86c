import CWardLinux
import Glibc

/// A thread of one's own that runs closures one after another: for calls that block, away from
/// request threads and from Swift's cooperative pool. The thread starts with the first closure;
/// where none can be had, which is no reason to end, with a later one.
public final class BackgroundQueue: @unchecked Sendable {
    // Sendable: everything below is guarded by `mutex`.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var waiting: [@Sendable () -> Void] = []
    private var isRunning = false
    private var isBusy = false
    private let name: String
    private let stackBytes: Int

    /// `name`: at most 15 bytes, what `ps -L` shows.
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

    public func run(_ body: @escaping @Sendable () -> Void) {
        pthread_mutex_lock(mutex)
        waiting.append(body)
        startThread()
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    /// Tries again to start the thread, where something waits that none could be had for. For who
    /// waits for that.
    public func retry() {
        pthread_mutex_lock(mutex)
        if !waiting.isEmpty { startThread() }
        pthread_mutex_unlock(mutex)
    }

    /// The mutex is held.
    private func startThread() {
        guard !isRunning,
            let thread = try? SystemThread(name, stackBytes: stackBytes, { self.serve() })
        else { return }
        thread.detach()
        isRunning = true
    }

    /// Waits until nothing is left to run. What no thread could be started for is run here.
    public func drain() {
        pthread_mutex_lock(mutex)
        while !waiting.isEmpty || isBusy {
            if isRunning || isBusy { pthread_cond_wait(condition, mutex) } else { runNext() }
        }
        pthread_mutex_unlock(mutex)
    }

    /// The mutex is held before and after.
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
