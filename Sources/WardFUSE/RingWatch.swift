import CWardLinux
import Synchronization
import WardSystem

/// Looks after the workers of the rings every 20 ms while there is something to do.
///
/// One that has served, and that nothing came for since the last look, is sent to rest: it wipes
/// its buffers and its stack. To do that before each wait would cost more than a small request. And
/// where all workers of a queue have been at the same request since the last look (the store does
/// not answer), another one is started, so that the programs of that CPU, and a lock, go on.
/// Workers that give way and are starved for it are looked for more often.
final class RingWatch: Sendable {
    private static let intervalNanoseconds = 20_000_000

    private let share: RingShare
    /// Those that there are now.
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

    /// Of any thread.
    func end() {
        isEnding.store(true, ordering: .sequentiallyConsistent)
        share.watchWord.increment()
        share.watchWord.wakeAll()
    }

    func run() {
        var beats: [ObjectIdentifier: UInt64] = [:]
        var starvation = Starvation()
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
                nanoseconds: share.mayGiveWay.load(ordering: .relaxed)
                    ? Starvation.intervalNanoseconds : RingWatch.intervalNanoseconds)
            let now = SystemClock.nanoseconds()
            endStarvation(&starvation, now)
            guard now >= nextLook else { continue }
            nextLook = now &+ UInt64(RingWatch.intervalNanoseconds)
            look(&beats)
        }
    }

    /// Who gave way and is not let run gives way no more.
    func endStarvation(_ starvation: inout Starvation, _ now: UInt64) {
        guard share.mayGiveWay.load(ordering: .relaxed) else { return }
        let all = workers()
        let threads = all.map { $0.thread.load(ordering: .relaxed) }
        guard !starvation.find(threads.filter { ward_thread_gives_way($0) != 0 }).isEmpty else {
            return
        }
        share.mayGiveWayFrom.store(
            now &+ starvation.pauseNanoseconds(at: now), ordering: .sequentiallyConsistent)
        for worker in all { worker.stopGivingWay() }
    }

    /// `beats`: those of the last look.
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
            // One that has come meanwhile saw that it was watched.
            if !all.allSatisfy({ $0.isClean.load(ordering: .sequentiallyConsistent) }) {
                share.isWatched.store(true, ordering: .sequentiallyConsistent)
            }
        }
    }
}
