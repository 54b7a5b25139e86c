import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// Owns the lock state of a mounted volume. Performs the effects of the state machine on a thread
/// of its own.
///
/// Concurrency: only the lock thread handles events and performs effects, one after the other. So
/// an unlock that arrives during an eviction takes effect after it, and no new key is wiped. Any
/// thread can read `status`, and never waits for the lock thread.
final class LockKeeper: @unchecked Sendable {
    // Sendable: mutexes guard the variables, except for those of the lock thread.

    /// After this time the connection is aborted and the keys are wiped anyway.
    static let evictionDeadline = Duration.seconds(5)

    struct Status {
        var machine: LockStateMachine
        /// RFC 3339.
        var since: String
    }

    private let volume: Volume
    private let connection: FUSEConnection
    private let time: any TimeSource
    private let hub: EventHub
    private let maintenance: Maintenance
    private let connections: HostConnections
    /// Nil where no helper process is wanted.
    private let flusher: PageFlusher
    /// A lock that could not end otherwise aborted the connection: the mount is dead and the daemon
    /// ends.
    private let isCutOff = Atomic(false)
    /// The mount ends: no event brings keys back any more.
    private let isLeaving = Atomic(false)
    private let current: Mutex<Status>
    /// Has the lock thread.
    private let queue = SerialQueue("ward-lock", starts: .atOnce)
    /// Waits for the timer, and posts its events.
    private let timerThread = Mutex<SystemThread?>(nil)
    /// The thread of evictions, so that a hanging one does not stop the lock thread.
    private let recipes = StandbyThread("ward-recipe")
    /// The duration of the last eviction since it was due, and the files that it dropped. Used by
    /// the lock thread.
    private var lastEviction: (duration: Duration, files: Int)?
    /// When the passcode of the unlock under way arrived, monotonic. Used by the lock thread.
    private var passcodeArrival: Duration?

    init(
        volume: Volume, connection: FUSEConnection, machine: LockStateMachine,
        time: any TimeSource, hub: EventHub, maintenance: Maintenance,
        connections: HostConnections, flusher: PageFlusher
    ) {
        self.volume = volume
        self.connection = connection
        self.time = time
        self.hub = hub
        self.maintenance = maintenance
        self.connections = connections
        self.flusher = flusher
        current = Mutex(Status(machine: machine, since: Timestamp.now()))
        hub.enter(machine.state.rawName)
        signalClasses()
        let thread = SystemThread.start("ward-timer") { [unowned self] in
            while time.awaitAlarm() { queue.add { [unowned self] in handle(.timer) } }
        }
        timerThread.withLock { $0 = thread }
    }

    // MARK: From any thread

    var status: Status { current.withLock { $0 } }
    var stateName: String { current.withLock { $0.machine.state.rawName } }

    func graceRemaining() -> Duration? {
        current.withLock { $0.machine.graceRemaining(now: time.now) }
    }

    /// Handles an event on the lock thread, after everything posted before. Returns false where the
    /// mount has ended.
    ///
    /// - `refuse` is called first: where it returns true, the event is dropped.
    /// - `prepare` is called just before the event.
    /// - `done` is called after all effects, with the state's name.
    /// - `arrival` is when the passcode of an unlock came in, monotonic.
    ///
    /// After the connection was aborted, or at the mount's end, keys are not brought back: no mount
    /// could use them. Where the abort failed, the mount lives on with its gate closed, and an
    /// unlock works.
    @discardableResult
    func post(
        _ event: LockStateMachine.Event, arrival: Duration? = nil,
        refuse: (@Sendable () -> Bool)? = nil, prepare: (@Sendable () -> Void)? = nil,
        done: (@Sendable (String) -> Void)? = nil
    ) -> Bool {
        queue.add { [unowned self] in
            if refuse?() == true { return }
            let bringsKeys = [.unlocked, .passcodeRemoved, .hostConnected].contains(event)
            let isOver =
                isCutOff.load(ordering: .relaxed)
                || isLeaving.load(ordering: .sequentiallyConsistent)
            if !(bringsKeys && isOver) {
                prepare?()
                passcodeArrival = arrival
                handle(event)
            }
            done?(stateName)
        }
    }

    /// Runs `body`, which must not wait, on the lock thread after everything posted before. False
    /// where the mount has ended.
    func perform(_ body: @escaping @Sendable () -> Void) -> Bool { queue.add(body) }

    /// Moves a manual clock by `seconds`. Calls `done` after all effects of the timers that came
    /// due.
    func advance(
        _ manual: ManualTime, by seconds: Duration, done: @escaping @Sendable (String) -> Void
    ) {
        queue.add { [unowned self] in
            let end = manual.now + seconds
            while manual.advance(to: end) { handle(.timer) }
            done(stateName)
        }
    }

    /// The mount ends: from now on an unlock under way, or a connecting host, is too late.
    func leaveForGood() { isLeaving.store(true, ordering: .sequentiallyConsistent) }

    /// Evicts every class, in any state, because the mount ends. Returns when that is done.
    func evictEverything() {
        leaveForGood()
        let done = WakeWord()
        let isTaken = queue.add { [unowned self] in
            evict(.all, keepOpenFiles: [])
            done.signal()
        }
        if isTaken { done.wait(timeout: LockKeeper.evictionDeadline * 3) }
    }

    /// Handles an event and waits for its effects. Must not be called on the lock thread.
    func perform(_ event: LockStateMachine.Event) {
        let done = WakeWord()
        if post(event, done: { _ in done.signal() }) {
            done.wait(timeout: LockKeeper.evictionDeadline * 3)
        }
    }

    /// Ends the helper process before an unmount, which it would block.
    func leaveMount() {
        flusher.end()
        flusher.waitUntilIdle()
    }

    func stop() {
        queue.end()
        time.endAlarms()
        timerThread.withLock { $0.take() }?.join()
        recipes.stop()
    }

    // MARK: The lock thread

    /// Handles an event. The published state says that a class is closed before it is, and that it
    /// is open only after it is.
    private func handle(_ event: LockStateMachine.Event) {
        // No other thread changes it.
        var next = status.machine
        let effects = next.handle(event, now: time.now)
        for case .admit(let classes) in effects {
            flusher.end()
            volume.admit(classes)
        }
        current.withLock { [next] current in
            if current.machine.state != next.state { current.since = Timestamp.now() }
            current.machine = next
        }
        hub.enter(stateName)
        var evicted = false
        for effect in effects {
            switch effect {
            case .evict(let classes, let kept):
                evictAndTime(classes, keepOpenFiles: kept)
                evicted = true
            case .admit: break
            case .startTimer(let at): time.setAlarm(at: at)
            case .cancelTimer: time.setAlarm(at: nil)
            case .endHosts: endHosts(event)
            case .announce(let announcement): announce(announcement)
            }
        }
        // Harmless where this was not the eviction at a grace period's end.
        if evicted { handle(.evicted) }
        signalClasses()
    }

    /// Ends the connections of all trusted hosts; none of them counts from here on.
    private func endHosts(_ event: LockStateMachine.Event) {
        let why = event.reasonForHosts
        for connection in connections.endAll(why) {
            hub.emit(
                ControlEvent(
                    kind: .trustedHost, state: stateName, operation: "end",
                    detail: "\(connection.name): \(why)"))
        }
    }

    private func evictAndTime(
        _ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet
    ) {
        var lateness = Duration.zero
        if case .locking(let end) = status.machine.state { lateness = max(.zero, time.now - end) }
        let began = SystemClock.monotonic()
        let files = evict(classes, keepOpenFiles: kept)
        lastEviction = (SystemClock.monotonic() - began + lateness, files)
    }

    /// Tells the followers of each class whether it is open now.
    private func signalClasses() {
        let machine = status.machine
        let left = machine.graceRemaining(now: time.now)
        hub.signal(
            available: volume.available, closing: left == nil ? [] : [.a, .b],
            secondsLeft: left?.inSeconds, state: machine.state.rawName)
    }

    private func announce(_ announcement: LockStateMachine.Announcement) {
        let took = passcodeArrival.map { SystemClock.monotonic() - $0 }
        hub.emit(announcement.event(state: stateName, eviction: lastEviction, unlock: took))
        switch announcement {
        case .willBecomeUnavailable(let left):
            if left > .zero { flusher.begin { [weak self] in self?.graceRemaining() } }
        case .locked: maintenance.makeDurable()
        case .didBecomeAvailable: maintenance.mend()
        default: break
        }
        signalClasses()
    }

    /// Runs the lock recipe with two limits: the volume's own deadline, and the end of the wait for
    /// a volume that misses it. Returns the number of files whose pages the kernel was told to
    /// drop.
    @discardableResult
    private func evict(
        _ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet
    ) -> Int {
        // From here on workers do not yield the CPU to programs: a yielding one could hold a file's
        // lock.
        connection.stopYielding()
        flusher.end()
        flusher.assist()
        let report = evict(classes, keepOpenFiles: kept, deadline: LockKeeper.evictionDeadline)
        if let report, !report.deadlinePassed {
            connection.wipeRequestBuffers()
            if report.pendingStoreBytes > 0 { notePending(report.pendingStoreBytes) }
            return report.invalidatedFiles
        }
        if report == nil { volume.abandonEviction(of: classes, keepOpenFiles: kept) }
        let aborted = connection.abort()
        if aborted { isCutOff.store(true, ordering: .relaxed) }
        hub.emit(
            ControlEvent(
                kind: .lost, state: stateName,
                detail: "the lock took longer than 5 s: the keys are wiped, the mount "
                    + (aborted ? "is cut off" : "could not be cut off")
                    + ", and what mapped files had not written back is lost"))
        if aborted {
            // The kernel keeps the pages of an aborted connection. Now no write-back can hang, so
            // they can be dropped.
            _ = evict(classes, keepOpenFiles: kept, deadline: .seconds(1))
        } else if report == nil {
            let volume = volume
            _ = recipes.run(timeout: .seconds(1)) {
                volume.wipeThreads(patience: .milliseconds(500))
            }
        }
        // A worker that waits for the disk wipes only after that.
        connection.wipeRequestBuffers(timeout: .milliseconds(200))
        return report?.invalidatedFiles ?? 0
    }

    private func notePending(_ bytes: Int) {
        hub.emit(
            ControlEvent(
                kind: .note, state: stateName,
                detail: "the store is slow to take what the lock had written back: "
                    + "\(bytes) bytes of ciphertext wait in memory"))
    }

    /// Evicts on the recipe thread. Nil where the volume has not finished a second after the
    /// deadline, or no thread could be started.
    private func evict(
        _ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport? {
        let eviction = volume.beginEviction(of: classes, keepOpenFiles: kept, deadline: deadline)
        let outcome = Outcome()
        let isDone = recipes.run(timeout: deadline + .seconds(1)) {
            let report = eviction.run()
            outcome.report.withLock { $0 = report }
        }
        return isDone ? outcome.report.withLock { $0 } : nil
    }

    private final class Outcome: Sendable {
        let report = Mutex<EvictionReport?>(nil)
    }
}
