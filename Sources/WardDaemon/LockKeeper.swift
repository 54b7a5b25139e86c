import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardFUSE
import WardFormat
import WardKeys
import WardSystem
import WardVolume

/// Owns the lock state of a mounted volume and does what the state machine asks for, on a thread of its own.
///
/// Concurrency: events are handled and effects performed on the lock thread alone, one after the other, so an unlock
/// that arrives during an eviction takes effect after it and no key is wiped that was just installed. `status` can be
/// read from anywhere and never waits for the thread.
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
    private let current: Mutex<Status>
    private let jobs = Mutex(Jobs())
    private let wake = WakeDescriptor()

    init(
        volume: Volume, connection: FUSEConnection, machine: LockStateMachine,
        time: any TimeSource, hub: EventHub, maintenance: Maintenance
    ) {
        self.volume = volume
        self.connection = connection
        self.time = time
        self.hub = hub
        self.maintenance = maintenance
        current = Mutex(Status(machine: machine, since: Timestamp.now()))
        let thread = SystemThread.start("ward-lock") { [unowned self] in run() }
        jobs.withLock { $0.thread = thread }
    }

    // MARK: From any thread

    var status: Status { current.withLock { $0 } }
    var stateName: String { current.withLock { $0.machine.state.rawName } }

    func graceRemaining() -> Duration? {
        current.withLock { $0.machine.graceRemaining(now: time.now) }
    }

    /// Handles an event on the lock thread; `prepare` runs there just before, `done` after every effect, with the
    /// state's name.
    @discardableResult
    func post(
        _ event: LockStateMachine.Event, prepare: (@Sendable () -> Void)? = nil,
        done: (@Sendable (String) -> Void)? = nil
    ) -> Bool {
        add { [unowned self] in
            prepare?()
            handle(event)
            done?(stateName)
        }
    }

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

    /// Evicts every class, whatever the state: the mount ends. Returns when that is done.
    func evictEverything() {
        let done = WakeDescriptor()
        let isTaken = add { [unowned self] in
            evict(.all, keepOpenFiles: [])
            done.signal()
        }
        if isTaken { done.wait(timeout: LockKeeper.evictionDeadline * 3) }
    }

    /// Handles an event and waits for its effects; not on the lock thread.
    func perform(_ event: LockStateMachine.Event) {
        let done = WakeDescriptor()
        if post(event, done: { _ in done.signal() }) {
            done.wait(timeout: LockKeeper.evictionDeadline * 3)
        }
    }

    func stop() {
        let thread = jobs.withLock { jobs in
            jobs.isStopping = true
            return jobs.thread.take()
        }
        wake.signal()
        thread?.join()
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

    private func handle(_ event: LockStateMachine.Event) {
        let effects = current.withLock { current in
            let before = current.machine.state
            let effects = current.machine.handle(event, now: time.now)
            if current.machine.state != before { current.since = Timestamp.now() }
            return effects
        }
        var evicted = false
        for effect in effects {
            switch effect {
            case .evict(let classes, let kept):
                evict(classes, keepOpenFiles: kept)
                evicted = true
            case .admit(let classes): volume.admit(classes)
            case .startTimer(let at): time.setAlarm(at: at)
            case .cancelTimer: time.setAlarm(at: nil)
            case .announce(let announcement): announce(announcement)
            }
        }
        // Harmless where it was not the eviction at the end of a grace period.
        if evicted { handle(.evicted) }
    }

    private func announce(_ announcement: LockStateMachine.Announcement) {
        let state = stateName
        switch announcement {
        case .willBecomeUnavailable(let left):
            hub.emit(
                ControlEvent(
                    kind: .willBecomeUnavailable, state: state, secondsLeft: left.inSeconds))
        case .locked:
            hub.emit(ControlEvent(kind: .locked, state: state))
            maintenance.makeDurable()
        case .didBecomeAvailable:
            hub.emit(ControlEvent(kind: .didBecomeAvailable, state: state))
            maintenance.mend()
        case .firstUnlock: hub.emit(ControlEvent(kind: .firstUnlock, state: state))
        case .reboot: hub.emit(ControlEvent(kind: .reboot, state: state))
        case .passcodeChanged: hub.emit(ControlEvent(kind: .passcodeChanged, state: state))
        case .userInactive:
            hub.emit(
                ControlEvent(
                    kind: .note, state: state,
                    detail: "class CX can't be opened until the next unlock"))
        case .lockIgnored:
            hub.emit(
                ControlEvent(
                    kind: .note, state: state, detail: "no passcode is set: a lock changes nothing")
            )
        }
    }

    /// The lock recipe, bounded twice: by the volume's own deadline, and by not waiting for a volume that misses it.
    private func evict(_ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet) {
        let report = evict(classes, keepOpenFiles: kept, deadline: LockKeeper.evictionDeadline)
        if report?.deadlinePassed == false {
            connection.wipeRequestBuffers()
            return
        }
        volume.keyring.evict(classes)
        let aborted = connection.abort()
        hub.emit(
            ControlEvent(
                kind: .lost, state: stateName,
                detail: "the lock took longer than 5 s: the keys are wiped, the mount "
                    + (aborted ? "is cut off" : "could not be cut off")
                    + ", and what mapped files had not written back is lost"))
        // An aborted connection keeps the kernel's pages; now that no write-back can hang, they can be dropped.
        if aborted { _ = evict(classes, keepOpenFiles: kept, deadline: .seconds(1)) }
        // A worker that waits for the disk does not wipe before it is back.
        connection.wipeRequestBuffers(timeout: .milliseconds(200))
    }

    /// Nil where the volume is still at it a second after the deadline.
    private func evict(
        _ classes: ProtectionClassSet, keepOpenFiles kept: ProtectionClassSet, deadline: Duration
    ) -> EvictionReport? {
        let volume = volume
        let outcome = Outcome()
        let thread = SystemThread.start("ward-recipe") {
            let report = volume.evict(classes, keepOpenFiles: kept, deadline: deadline)
            outcome.report.withLock { $0 = report }
            outcome.done.signal()
        }
        guard outcome.done.wait(timeout: deadline + .seconds(1)) else {
            thread.detach()
            return nil
        }
        thread.join()
        return outcome.report.withLock { $0 }
    }

    private final class Outcome: Sendable {
        let report = Mutex<EvictionReport?>(nil)
        let done = WakeDescriptor()
    }
}
