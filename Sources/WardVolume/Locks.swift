import Glibc

/// A readers-writer lock at a stable address, pthread_rwlock_init(3). Readers of a file share it.
final class ReadWriteLock: @unchecked Sendable {
    private let lock: UnsafeMutablePointer<pthread_rwlock_t>

    init() {
        lock = .allocate(capacity: 1)
        pthread_rwlock_init(lock, nil)
    }

    deinit {
        pthread_rwlock_destroy(lock)
        lock.deallocate()
    }

    @inline(__always) func lockRead() { pthread_rwlock_rdlock(lock) }
    func tryLockRead() -> Bool { pthread_rwlock_tryrdlock(lock) == 0 }
    @inline(__always) func lockWrite() { pthread_rwlock_wrlock(lock) }
    @inline(__always) func unlock() { pthread_rwlock_unlock(lock) }
}

/// A mutex that can be tried, at a stable address.
final class TryableLock: @unchecked Sendable {
    private let lock: UnsafeMutablePointer<pthread_mutex_t>

    init() {
        lock = .allocate(capacity: 1)
        pthread_mutex_init(lock, nil)
    }

    deinit {
        pthread_mutex_destroy(lock)
        lock.deallocate()
    }

    @inline(__always) func lockNow() { pthread_mutex_lock(lock) }
    @inline(__always) func tryLock() -> Bool { pthread_mutex_trylock(lock) == 0 }
    @inline(__always) func unlock() { pthread_mutex_unlock(lock) }
}
