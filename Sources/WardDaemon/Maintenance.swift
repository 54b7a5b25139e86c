import CWardLinux
import Synchronization
import WardControl
import WardSystem
import WardVolume

/// What a mounted volume does for itself: durable points while it is used, mending after an unclean
/// end.
///
/// Two threads, because both may wait for the disk for long, and neither may hold up a lock.
final class Maintenance: Sendable {
    /// Between durable points of a volume that is written to.
    static let interval = Duration.seconds(120)

    private let volume: Volume
    private let log: LogWriter
    private let isStopping = Atomic(false)
    private let syncWake = WakeWord()
    private let mendWake = WakeWord()
    private let threads = Mutex<[SystemThread]>([])
    private let regular = Mutex<(@Sendable () -> Void)?>(nil)
    /// Told when the next durable point is done, or why it is not.
    private let waiting = Mutex<[@Sendable (Errno?) -> Void]>([])

    init(volume: Volume, log: LogWriter) {
        self.volume = volume
        self.log = log
        let sync = SystemThread.start("ward-sync") { [unowned self] in runSync() }
        let mend = SystemThread.start("ward-mend") { [unowned self] in runMend() }
        threads.withLock { $0 = [sync, mend] }
    }

    /// What is to be done once in a while, besides; it waits for nothing.
    func everyInterval(_ body: @escaping @Sendable () -> Void) { regular.withLock { $0 = body } }

    /// Asks for a durable point now.
    func makeDurable() { syncWake.signal() }

    /// The same, also where nothing has changed; `done` is told, on the thread of the durable
    /// points.
    func makeDurable(_ done: @escaping @Sendable (Errno?) -> Void) {
        waiting.withLock { $0.append(done) }
        syncWake.signal()
    }

    /// Asks for a pass over files in doubt, now that their classes can be opened.
    func mend() { mendWake.signal() }

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
            guard volume.hasUnsyncedChanges || !told.isEmpty else { continue }
            var failure: Errno?
            do throws(Errno) {
                try volume.durablePoint()
            } catch {
                failure = error
                log.write(.error, "durable point failed: \(error)")
            }
            for done in told { done(failure) }
            // What failed half-way while the store did is looked through once it does not.
            if failure == nil, volume.needsMending { mend() }
        }
    }

    private func runMend() {
        while true {
            mendWake.wait()
            if isStopping.load(ordering: .relaxed) { return }
            volume.mendDoubtfulFiles { isStopping.load(ordering: .relaxed) }
            ward_scrub_thread()
        }
    }
}
