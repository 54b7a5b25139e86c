import CWardLinux
import Glibc

/// A thread of one's own that runs closures one after another: for calls that block, away from request threads and from
/// Swift's cooperative pool. The thread starts with the first closure.
public final class BackgroundQueue: @unchecked Sendable {
    // Sendable: everything below is guarded by `mutex`.
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private var waiting: [@Sendable () -> Void] = []
    private var isRunning = false
    private var isBusy = false
    private let name: String

    /// `name`: at most 15 bytes, what `ps -L` shows.
    public init(name: String) {
        self.name = name
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
        if !isRunning {
            isRunning = true
            SystemThread.startDetached(name) { self.serve() }
        }
        pthread_cond_broadcast(condition)
        pthread_mutex_unlock(mutex)
    }

    /// Waits until nothing is left to run.
    public func drain() {
        pthread_mutex_lock(mutex)
        while !waiting.isEmpty || isBusy { pthread_cond_wait(condition, mutex) }
        pthread_mutex_unlock(mutex)
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
}
