import CWardLinux
import Synchronization
import WardControl
import WardSystem
import WardVolume

/// The volume's own work: durable points while it is used, mending after an unclean end, and the
/// judgement of classes after the first unlock.
///
/// Two threads, because both tasks may wait long for the disk, and neither may delay a lock.
final class Maintenance: Sendable {
    /// The time between durable points of a volume that is written to.
    static let interval = Duration.seconds(120)

    private let volume: Volume
    private let log: LogWriter
    private let isStopping = Atomic(false)
    private let syncWake = WakeWord()
    private let mendWake = WakeWord()
    private let threads = Mutex<[SystemThread]>([])
    private let regular = Mutex<(@Sendable () -> Void)?>(nil)
    /// Closures that get the result of the next durable point; nil for success.
    private let waiting = Mutex<[@Sendable (Errno?) -> Void]>([])

    init(volume: Volume, log: LogWriter) {
        self.volume = volume
        self.log = log
        let sync = SystemThread.start("ward-sync") { [unowned self] in runSync() }
        let mend = SystemThread.start("ward-mend") { [unowned self] in runMend() }
        threads.withLock { $0 = [sync, mend] }
    }

    /// Sets the work to do at each interval; it must not wait.
    func everyInterval(_ body: @escaping @Sendable () -> Void) { regular.withLock { $0 = body } }

    /// Asks for a durable point now.
    func makeDurable() { syncWake.signal() }

    /// Asks for a durable point even where nothing has changed. Calls `done` on the thread of
    /// durable points.
    func makeDurable(_ done: @escaping @Sendable (Errno?) -> Void) {
        waiting.withLock { $0.append(done) }
        syncWake.signal()
    }

    /// Asks for a pass over files in doubt, whose classes can be opened now. After the first unlock
    /// also for one over all classes.
    func mend() { mendWake.signal() }

    /// Gives the last changes before a first unlock their seals, and waits for it. A store that
    /// hangs delays the end of the mount by `patience` at most.
    func seal(within patience: Duration) {
        let done = WakeWord()
        makeDurable { _ in done.signal() }
        done.wait(timeout: patience)
    }

    func stop() {
        isStopping.store(true, ordering: .relaxed)
        syncWake.signal()
        mendWake.signal()
        let threads = threads.withLock { threads in
            defer { threads = [] }
            return threads
        }
        for thread in threads { thread.join() }
    }

    private func runSync() {
        while true {
            syncWake.wait(timeout: Maintenance.interval)
            let told = waiting.withLock { waiting in
                defer { waiting = [] }
                return waiting
            }
            if isStopping.load(ordering: .relaxed) {
                for done in told { done(.canceled) }
                return
            }
            regular.withLock { $0 }?()
            volume.sealChanges()
            guard volume.hasUnsyncedChanges || !told.isEmpty else { continue }
            var failure: Errno?
            do throws(Errno) {
                try volume.durablePoint()
            } catch {
                failure = error
                log.write(.error, "durable point failed: \(error)")
            }
            for done in told { done(failure) }
            // Mends files whose changes failed half-way, now that the store works.
            if failure == nil, volume.needsMending { mend() }
        }
    }

    private func runMend() {
        var judged: UInt64 = 0
        while true {
            mendWake.wait()
            if isStopping.load(ordering: .relaxed) { return }
            volume.mendDoubtfulFiles { [self] in isStopping.load(ordering: .relaxed) }
            let arrivals = volume.sealKeyArrivals
            if judged != arrivals {
                let isDone = volume.sealClasses { [self] in
                    isStopping.load(ordering: .relaxed) || volume.needsMending
                }
                if isDone { judged = arrivals }
            }
            ward_scrub_thread()
        }
    }
}
