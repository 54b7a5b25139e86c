import Synchronization
import WardFormat
import WardKeys
import WardSystem

/// Decides which content may be served, and ends the service of classes at a lock.
///
/// Concurrency: any thread; each part has a lock of its own.
final class ContentGate: Sendable {
    let keyring: ClassKeyring
    /// The capsules in class B's keys; nil in format 1.
    let capsules: Capsules?
    let seals: ClassSeals
    let classes: ClassGate
    let contexts = WorkerContexts()
    let evictions = Evictions()
    /// Pages that the kernel is about to drop. No class opens meanwhile.
    let drops = PageDrops()
    /// Decides when refused reads are answered.
    let refusals = Refusals()

    init(_ keyring: ClassKeyring, _ capsules: Capsules?, _ seals: ClassSeals) {
        self.keyring = keyring
        self.seals = seals
        self.capsules = capsules
        classes = ClassGate(open: keyring.available)
    }
}

/// The contexts of all threads that serve requests.
///
/// Concurrency: any thread; `lock` guards the list. `forEach` holds it while it waits for a
/// context.
final class WorkerContexts: @unchecked Sendable {
    // Sendable: `lock` guards the list.
    private var contexts: [ObjectIdentifier: Unmanaged<WorkerContext>] = [:]
    private let lock = Lock(.contexts)

    func register(_ context: WorkerContext) {
        lock.withLock {
            contexts[ObjectIdentifier(context)] = Unmanaged.passUnretained(context)
        }
    }

    func unregister(_ context: WorkerContext) {
        lock.withLock { contexts[ObjectIdentifier(context)] = nil }
    }

    /// Calls `body` with the context of each thread. None is freed meanwhile.
    func forEach(_ body: (WorkerContext) -> Void) {
        lock.withLock {
            for context in contexts.values { context._withUnsafeGuaranteedRef(body) }
        }
    }

    /// Waits for requests under way. Returns false if one did not end in time.
    func drain(until end: Duration) -> Bool { drain(wiping: false, until: end) }

    /// Waits for requests under way and wipes cipher contexts and plaintext. Returns false if a
    /// request did not end in time.
    func wipe(until end: Duration) -> Bool { drain(wiping: true, until: end) }

    private func drain(wiping: Bool, until end: Duration) -> Bool {
        var isComplete = true
        forEach {
            if !$0.drain(wiping: wiping, patience: end - SystemClock.monotonic()) {
                isComplete = false
            }
        }
        return isComplete
    }

    /// Whether a request is under way that announced an epoch before `now`.
    func areWriting(before now: UInt32) -> Bool {
        var result = false
        forEach { context in
            let used = context.epochInUse.load(ordering: .sequentiallyConsistent)
            if used != 0, used < now { result = true }
        }
        return result
    }
}

/// Numbers evictions and admissions. Only the latest may still touch the gate and the keys.
///
/// Concurrency: any thread; `lock` guards the number, and is never held while waiting.
final class Evictions: @unchecked Sendable {
    // Sendable: `lock` guards the number.
    private var latest: UInt64 = 0
    private let lock = Lock(.eviction)

    /// Begins an eviction or an admission, and makes all earlier ones void.
    func begin() -> UInt64 {
        lock.withLock {
            latest += 1
            return latest
        }
    }

    /// Runs `body` unless a later eviction or admission has begun. `body` must not wait.
    func step(of eviction: UInt64, _ body: () -> Void) {
        lock.withLock { if eviction == latest { body() } }
    }
}
