import CWardLinux
import Synchronization
import WardSystem

/// Looks after the workers of the rings, every 20 ms while any of them may hold content.
///
/// A worker that served, and got no request since the last look, is sent to rest: it wipes its
/// buffers and its stack. To do that before each wait would cost more than a small request.
///
/// If all workers of a queue serve the same request as at the last look, the backing store does not
/// answer. Then another worker is started, so that the programs of that CPU, and a lock, go on.
///
/// Workers that yield and starve are looked for more often.
final class RingWatch: Sendable {
    private static let intervalNanoseconds = 20_000_000

    private let share: RingShare
    /// Returns the current workers.
    private let workers: @Sendable () -> [RingWorker]
    private let needOthers: @Sendable (_ queue: UInt16) -> Void
    private let isEnding = Atomic<Bool>(false)

    init(
        _ share: RingShare, workers: @escaping @Sendable () -> [RingWorker],
        needOthers: @escaping @Sendable (_ queue: UInt16) -> Void
    ) {
        self.share = share
        self.workers = workers
        self.needOthers = needOthers
    }

    /// Ends the watch. Any thread may call.
    func end() {
        isEnding.store(true, ordering: .sequentiallyConsistent)
        share.watchWord.increment()
        share.watchWord.wakeAll()
    }

    func run() {
        var beats: [ObjectIdentifier: UInt64] = [:]
        var policy = ServingPolicy(rules: share.rules, machine: share.machine)
        var nextLook: UInt64 = 0
        while true {
            let word = share.watchWord.value
            if isEnding.load(ordering: .sequentiallyConsistent) { return }
            guard share.isWatched.load(ordering: .sequentiallyConsistent) else {
                beats = [:]
                share.watchWord.wait(while: word)
                nextLook = SystemClock.nanoseconds() &+ UInt64(RingWatch.intervalNanoseconds)
                continue
            }
            share.watchWord.wait(
                while: word,
                nanoseconds: share.mayYield.load(ordering: .relaxed)
                    ? Int(share.machine.starvationNanoseconds) : RingWatch.intervalNanoseconds)
            let now = SystemClock.nanoseconds()
            endStarvation(&policy, now)
            guard now >= nextLook else { continue }
            nextLook = now &+ UInt64(RingWatch.intervalNanoseconds)
            look(&beats)
        }
    }

    /// Keeps all workers from yielding for some time if one of them starves.
    func endStarvation(_ policy: inout ServingPolicy, _ now: UInt64) {
        guard share.mayYield.load(ordering: .relaxed) else { return }
        let all = workers()
        let threads = all.map { $0.thread.load(ordering: .relaxed) }
        let samples = threads.filter { ward_thread_gives_way($0) != 0 }.map {
            ThreadSample(thread: $0, use: ThreadUse.read(ofThread: $0))
        }
        let decision = policy.decide(.workersMeasured(samples, at: now))
        guard case .stopYielding(let barredUntil) = decision else { return }
        share.notBefore.store(barredUntil, ordering: .sequentiallyConsistent)
        for worker in all { worker.stopYielding() }
    }

    /// Looks at all workers once. `beats`: the beats of the last look.
    func look(_ beats: inout [ObjectIdentifier: UInt64]) {
        let all = workers()
        var stuck: [UInt16: Bool] = [:]
        var now: [ObjectIdentifier: UInt64] = [:]
        for worker in all {
            let beat = worker.beat.load(ordering: .acquiring)
            now[ObjectIdentifier(worker)] = beat
            let isSame = beats[ObjectIdentifier(worker)] == beat
            let isServing = beat & 1 == 1
            for queue in worker.queues {
                stuck[queue] = (stuck[queue] ?? true) && isSame && isServing
            }
            if isSame, !isServing, !worker.isClean.load(ordering: .sequentiallyConsistent) {
                worker.mustRest.store(true, ordering: .sequentiallyConsistent)
                worker.wipeProgress.interrupt()
            }
        }
        beats = now
        for (queue, isStuck) in stuck where isStuck { needOthers(queue) }
        if all.allSatisfy({ $0.isClean.load(ordering: .sequentiallyConsistent) }) {
            share.isWatched.store(false, ordering: .sequentiallyConsistent)
            // A worker that began to serve meanwhile saw `isWatched` and did not wake this thread:
            // look again.
            if !all.allSatisfy({ $0.isClean.load(ordering: .sequentiallyConsistent) }) {
                share.isWatched.store(true, ordering: .sequentiallyConsistent)
            }
        }
    }
}
