import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// Owns the lock state of a mounted volume and does what the state machine asks for, on a thread of
/// its own.
///
/// Concurrency: events are handled and effects performed on the lock thread alone, one after the
/// other, so an unlock that arrives during an eviction takes effect after it and no key is wiped
/// that was just installed. `status` can be read from anywhere and never waits for the thread.
final class LockKeeper: @unchecked Sendable {
    // Sendable: what is not constant is in mutexes.

    /// Past this the connection is aborted and the keys are wiped all the same.
    static let evictionDeadline = Duration.seconds(5)

    struct Status {
        var machine: LockStateMachine
        /// RFC 3339.
        var since: String
    }

    private struct Jobs {
        var waiting: [@Sendable () -> Void] = []
        var isStopping = false
        var thread: SystemThread?
    }

    private let volume: Volume
    private let connection: FUSEConnection
    private let time: any TimeSource
    private let hub: EventHub
    private let maintenance: Maintenance
    private let connections: HostConnections
    /// Nil where no helper process is to be started.
    private let flusher: PageFlusher?
    /// The connection was aborted by a lock that could not end otherwise: the mount is dead and the
    /// daemon ends.
    private let isCutOff = Atomic(false)
    /// The mount ends for good: nothing brings keys back any more.
    private let isLeaving = Atomic(false)
    private let current: Mutex<Status>
    private let jobs = Mutex(Jobs())
    private let wake = WakeDescriptor()
    /// What evictions run on, so that one that hangs does not hold the lock thread.
    private let recipes = StandbyThread("ward-recipe")
    /// How long the last eviction took, from the moment it was due, and the files it dropped. The
    /// lock thread's.
    private var lastEviction: (duration: Duration, files: Int)?
    /// When the passcode of the unlock under way arrived, monotonic. The lock thread's.
    private var passcodeArrival: Duration?

    init(
        volume: Volume, connection: FUSEConnection, machine: LockStateMachine,
        time: any TimeSource, hub: EventHub, maintenance: Maintenance,
        connections: HostConnections, flusher: PageFlusher?
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
        let thread = SystemThread.start("ward-lock") { [unowned self] in run() }
        jobs.withLock { $0.thread = thread }
    }

    // MARK: From any thread

    var status: Status { current.withLock { $0 } }
    var stateName: String { current.withLock { $0.machine.state.rawName } }

    func graceRemaining() -> Duration? {
        current.withLock { $0.machine.graceRemaining(now: time.now) }
    }

    /// Handles an event on the lock thread; `prepare` runs there just before, `done` after every
    /// effect, with the state's name. `arrival`: when the passcode of an unlock came in, monotonic.
    /// `refuse` is asked there first, behind everything that was posted before: where it says true,
    /// that was all.
    ///
    /// Once the connection was aborted, or the mount is at its end, nothing brings keys back: there
    /// is no mount they could serve. Where it could not be aborted the mount lives, with its gate
    /// closed, and an unlock is as good as ever.
    @discardableResult
    func post(
        _ event: LockStateMachine.Event, arrival: Duration? = nil,
        refuse: (@Sendable () -> Bool)? = nil, prepare: (@Sendable () -> Void)? = nil,
        done: (@Sendable (String) -> Void)? = nil
    ) -> Bool {
        add { [unowned self] in
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

    /// Runs `body`, which waits for nothing, on the lock thread behind everything that was posted
    /// before. False where the mount has ended.
    func perform(_ body: @escaping @Sendable () -> Void) -> Bool { add(body) }

    /// Moves a manual clock by `seconds`; `done` after every effect of timers that fell due.
    func advance(
        _ manual: ManualTime, by seconds: Duration, done: @escaping @Sendable (String) -> Void
    ) {
        add { [unowned self] in
            let end = manual.now + seconds
            while manual.advance(to: end) { handle(.timer) }
            done(stateName)
        }
    }

    /// The mount ends, whatever comes: an unlock that was being tried, or a host that connects, is
    /// too late.
    func leaveForGood() { isLeaving.store(true, ordering: .sequentiallyConsistent) }

    /// Evicts every class, whatever the state: the mount ends. Returns when that is done.
    func evictEverything() {
        leaveForGood()
        let done = WakeWord()
        let isTaken = add { [unowned self] in
            evict(.all, keepOpenFiles: [])
            done.signal()
        }
        if isTaken { done.wait(timeout: LockKeeper.evictionDeadline * 3) }
    }

    /// Handles an event and waits for its effects; not on the lock thread.
    func perform(_ event: LockStateMachine.Event) {
        let done = WakeWord()
        if post(event, done: { _ in done.signal() }) {
            done.wait(timeout: LockKeeper.evictionDeadline * 3)
        }
    }

    /// Before an unmount: no helper process is to be in its way.
    func leaveMount() {
        flusher?.end()
        flusher?.waitUntilIdle()
    }

    func stop() {
        let thread = jobs.withLock { jobs in
            jobs.isStopping = true
            return jobs.thread.take()
        }
        wake.signal()
        thread?.join()
        recipes.stop()
    }

    /// False where the mount has ended.
    @discardableResult
    private func add(_ job: @escaping @Sendable () -> Void) -> Bool {
        let isTaken = jobs.withLock { jobs in
            if jobs.isStopping { return false }
            jobs.waiting.append(job)
            return true
        }
        wake.signal()
        return isTaken
    }

    // MARK: The lock thread

    private func run() {
        while true {
            waitForWork()
            let (work, isStopping) = jobs.withLock { jobs in
                defer { jobs.waiting = [] }
                return (jobs.waiting, jobs.isStopping)
            }
            for job in work { job() }
            ward_scrub_thread()
            if isStopping, work.isEmpty { return }
        }
    }

    private func waitForWork() {
        var requests = [
            pollfd(fd: wake.rawValue, events: Int16(POLLIN), revents: 0),
            pollfd(fd: time.alarmDescriptor, events: Int16(POLLIN), revents: 0),
        ]
        if !jobs.withLock({ $0.isStopping }) {
            _ = requests.withUnsafeMutableBufferPointer {
                try? Syscall.poll($0, timeoutMilliseconds: -1)
            }
        }
        wake.clear()
        if requests[1].revents != 0 {
            time.clearAlarm()
            handle(.timer)
        }
    }

    /// Says that a class can't be opened before that is so, and that it can only once it is so.
    private func handle(_ event: LockStateMachine.Event) {
        // Nobody else changes it.
        var next = status.machine
        let effects = next.handle(event, now: time.now)
        for case .admit(let classes) in effects {
            flusher?.end()
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
        // Harmless where it was not the eviction at the end of a grace period.
        if evicted { handle(.evicted) }
        signalClasses()
    }

    /// The lock thread's part of ending every trusted host's connection: from here on none of them
    /// counts.
    private func endHosts(_ event: LockStateMachine.Event) {
        let why =
            switch event {
            case .reboot: "the volume was rebooted"
            case .passcodeRemoved: "the passcode was removed"
            case .hostsRevoked: "no host is trusted any more"
            default: "the volume was locked for everybody"
            }
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

    /// Tells the followers of each class what can be opened now.
    private func signalClasses() {
        let machine = status.machine
        let left = machine.graceRemaining(now: time.now)
        hub.signal(
            available: volume.available, closing: left == nil ? [] : [.a, .b],
            secondsLeft: left?.inSeconds, state: machine.state.rawName)
    }

    private func announce(_ announcement: LockStateMachine.Announcement) {
        let state = stateName
        switch announcement {
        case .willBecomeUnavailable(let left):
            hub.emit(
                ControlEvent(
                    kind: .willBecomeUnavailable, state: state, secondsLeft: left.inSeconds))
            if left > .zero { flusher?.begin { [weak self] in self?.graceRemaining() } }
        case .locked:
            hub.emit(
                ControlEvent(
                    kind: .locked, state: state, seconds: lastEviction?.duration.inSeconds,
                    files: lastEviction?.files))
            maintenance.makeDurable()
        case .didBecomeAvailable:
            let took = passcodeArrival.map { SystemClock.monotonic() - $0 }
            hub.emit(
                ControlEvent(kind: .didBecomeAvailable, state: state, seconds: took?.inSeconds))
            maintenance.mend()
        case .heldOpen(let hosts):
            hub.emit(
                ControlEvent(
                    kind: .trustedHost, state: state, operation: "hold",
                    detail: "locked, and A and B stay open for "
                        + (hosts == 1 ? "a trusted host" : "\(hosts) trusted hosts")))
        case .openedForHost:
            hub.emit(
                ControlEvent(
                    kind: .didBecomeAvailable, state: state, detail: "for a trusted host"))
        case .firstUnlock: hub.emit(ControlEvent(kind: .firstUnlock, state: state))
        case .reboot: hub.emit(ControlEvent(kind: .reboot, state: state))
        case .passcodeChanged: hub.emit(ControlEvent(kind: .passcodeChanged, state: state))
        case .userInactive:
            hub.emit(
                ControlEvent(
                    kind: .didBecomeUnavailable, state: state, protectionClass: "CX",
                    detail: "there was no unlock for the volume's period"))
        case .lockIgnored:
            hub.emit(
                ControlEvent(
                    kind: .note, state: state, detail: "no passcode is set: a lock changes nothing")
            )
        }
        signalClasses()
    }

    /// The lock recipe, bounded twice: by the volume's own deadline, and by not waiting for a
    /// volume that misses it. Returns how many files' pages the kernel was told to drop.
    @discardableResult
    private func evict(
        _ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet
    ) -> Int {
        // A file's lock is not to be held by a worker that a program keeps from running.
        connection.stopGivingWay()
        flusher?.end()
        flusher?.assist()
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
            // An aborted connection keeps the kernel's pages; now that no write-back can hang, they
            // can be dropped.
            _ = evict(classes, keepOpenFiles: kept, deadline: .seconds(1))
        } else if report == nil {
            let volume = volume
            _ = recipes.run(timeout: .seconds(1)) {
                volume.wipeThreads(patience: .milliseconds(500))
            }
        }
        // A worker that waits for the disk does not wipe before it is back.
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

    /// Nil where the volume is still at it a second after the deadline, or where there is no thread
    /// it could be at it on.
    private func evict(
        _ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport? {
        let volume = volume
        let outcome = Outcome()
        let isDone = recipes.run(timeout: deadline + .seconds(1)) {
            let report = volume.evict(classes, keepOpenFiles: kept, deadline: deadline)
            outcome.report.withLock { $0 = report }
        }
        return isDone ? outcome.report.withLock { $0 } : nil
    }

    private final class Outcome: Sendable {
        let report = Mutex<EvictionReport?>(nil)
    }
}
