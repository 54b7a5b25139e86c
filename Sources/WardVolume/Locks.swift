import Glibc

/// A mutex at a stable address, pthread_mutex_init(3). A thread holds it for a scope and always
/// waits for it.
final class Lock: @unchecked Sendable {
    // Sendable: the mutex is made for several threads.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let place: LockPlace

    init(_ rank: LockRank) {
        place = LockPlace(rank)
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    @inline(__always)
    func withLock<R, E: Error>(
        outOfOrder exception: LockOrderException? = nil, _ body: () throws(E) -> R
    ) throws(E) -> R {
        place.willTake(exception)
        pthread_mutex_lock(mutex)
        defer {
            pthread_mutex_unlock(mutex)
            place.didGiveBack()
        }
        return try body()
    }
}

/// A readers-writer lock at a stable address, pthread_rwlock_init(3). Readers of a file share it.
final class ReadWriteLock: @unchecked Sendable {
    // Sendable: the lock is made for several threads.
    private let lock: UnsafeMutablePointer<pthread_rwlock_t>
    private let place: LockPlace

    init(_ rank: LockRank) {
        place = LockPlace(rank)
        lock = .allocate(capacity: 1)
        pthread_rwlock_init(lock, nil)
    }

    deinit {
        pthread_rwlock_destroy(lock)
        lock.deallocate()
    }

    @inline(__always)
    func withReadLock<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
        beginReading()
        defer { endReading() }
        return try body()
    }

    @inline(__always)
    func withWriteLock<R, E: Error>(
        outOfOrder exception: LockOrderException? = nil, _ body: () throws(E) -> R
    ) throws(E) -> R {
        place.willTake(exception)
        pthread_rwlock_wrlock(lock)
        defer {
            pthread_rwlock_unlock(lock)
            place.didGiveBack()
        }
        return try body()
    }

    /// Takes the lock, shared, until `endReading`. For callers that take it only on a condition.
    @inline(__always)
    func beginReading() {
        place.willTake()
        pthread_rwlock_rdlock(lock)
    }

    /// Takes the lock, shared, until `endReading`. False where another thread has it.
    func tryBeginReading(outOfOrder exception: LockOrderException? = nil) -> Bool {
        guard pthread_rwlock_tryrdlock(lock) == 0 else { return false }
        place.willTake(exception)
        return true
    }

    @inline(__always)
    func endReading() {
        pthread_rwlock_unlock(lock)
        place.didGiveBack()
    }
}

/// The mutex of one thread's content. It has no scope: READ takes it, and gives it back after its
/// reply was sent.
final class ContentLock: @unchecked Sendable {
    // Sendable: the mutex is made for several threads.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let place = LockPlace(.content)

    init() {
        mutex = .allocate(capacity: 1)
        pthread_mutex_init(mutex, nil)
    }

    deinit {
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
    }

    @inline(__always)
    func takeUntilGivenBack() {
        place.willTake()
        pthread_mutex_lock(mutex)
    }

    /// Takes the mutex as `takeUntilGivenBack` does. False where another thread has it.
    @inline(__always)
    func tryTake() -> Bool {
        guard pthread_mutex_trylock(mutex) == 0 else { return false }
        place.willTake()
        return true
    }

    @inline(__always)
    func giveBack() {
        pthread_mutex_unlock(mutex)
        place.didGiveBack()
    }
}
