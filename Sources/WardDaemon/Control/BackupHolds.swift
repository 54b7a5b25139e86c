import CWardLinux
import Glibc
import Synchronization
import WardControl
import WardSystem
import WardVolume

/// Holds a volume's epoch, and delays changes of its keybag, while backups are made.
///
/// A hold lasts as long as its client's connection, but has limits, also over consecutive backups.
/// After `longestWait` a change of the keybag goes on. After `longestEpochHold` the epoch does,
/// even during a backup. Locks, unlocks and erasing never wait here.
///
/// Concurrency: any thread; the mutex of `state` is held for moments.
final class BackupHolds: Sendable {
    static let maximum = 4
    /// A passcode that another person saw must be changed soon, not after a backup of two hours.
    static let longestWait = Duration.seconds(30)
    static let longestEpochHold = Duration.seconds(3600)
    /// How often clients are checked for their end.
    private static let interval = Duration.milliseconds(50)

    private struct Hold {
        var call: ControlCall
        /// The time on the clock of grace periods.
        var began: Duration
    }

    private struct Waiting {
        var since: Duration
        var body: @Sendable () -> Void
    }

    private struct State {
        var holds: [Hold] = []
        var waiting: [Waiting] = []
        /// Since when the epoch has been held without a break.
        var epochHeld: Duration?
        /// `watch` runs, or waits for its thread.
        var isWatched = false
        var isStopping = false
    }

    private let volume: Volume
    private let maintenance: Maintenance
    private let time: any TimeSource
    private let hub: EventHub
    private let state = Mutex(State())
    private let queue = SerialQueue("ward-backup")
    private let wake = WakeWord()

    init(volume: Volume, maintenance: Maintenance, time: any TimeSource, hub: EventHub) {
        self.volume = volume
        self.maintenance = maintenance
        self.time = time
        self.hub = hub
    }

    /// Answers `call` once everything is durable and held, and holds it until the client is gone.
    func begin(_ call: ControlCall) {
        let began = time.now
        let refusal = state.withLock { state -> VolumeError? in
            if state.isStopping { return .busy(reason: "the mount ends") }
            guard state.holds.count < BackupHolds.maximum else {
                return .busy(reason: "\(state.holds.count) backups are being made already")
            }
            if !state.isWatched {
                guard queue.add(needsThread: true, { [self] in watch() }) else {
                    return .failed(what: "begin a backup", why: "no thread can be started")
                }
                state.isWatched = true
            }
            state.holds.append(Hold(call: call, began: began))
            return nil
        }
        if let refusal { return call.fail(refusal) }
        maintenance.makeDurable { [self] failure in
            if let failure {
                forget(call)
                call.fail(
                    .failed(what: "make everything durable first", why: "\(failure)"))
                return
            }
            let isHeld = state.withLock { state -> Bool in
                let isHeld = state.holds.contains { $0.call === call }
                if isHeld { holdEpoch(&state, now: time.now) }
                return isHeld
            }
            guard isHeld else { return }
            hub.emit(ControlEvent(kind: .note, pid: Int(call.peer.pid), detail: "a backup began"))
            call.reply(.object([]), continues: true)
        }
    }

    /// Runs `body` when no backup is being made, or when it has waited `longestWait`.
    func whenFree(_ body: @escaping @Sendable () -> Void) {
        let now = time.now
        let waits = state.withLock { state in
            guard !state.holds.isEmpty, !state.isStopping else { return false }
            state.waiting.append(Waiting(since: now, body: body))
            return true
        }
        if !waits { body() }
    }

    /// Ends all holds.
    func stop() {
        state.withLock { $0.isStopping = true }
        wake.signal()
        queue.end()
    }

    // MARK: Clients that go

    /// Ends the holds of clients that are gone; returns when none is left.
    private func watch() {
        while true {
            wake.wait(timeout: BackupHolds.interval)
            let now = time.now
            let (due, ended, isOver) = state.withLock { state in
                let before = state.holds.count
                let isStopping = state.isStopping
                state.holds.removeAll { !$0.call.isAlive || isStopping }
                let isOver = state.holds.isEmpty
                var due: [Waiting] = []
                state.waiting.removeAll { waiting in
                    let isDue = isOver || now - waiting.since >= BackupHolds.longestWait
                    if isDue { due.append(waiting) }
                    return isDue
                }
                let isLong = { (began: Duration) in now - began >= BackupHolds.longestEpochHold }
                let isLongHeld = state.epochHeld.map(isLong) ?? true
                if isLongHeld || state.holds.allSatisfy({ isLong($0.began) }) {
                    volume.holdEpoch(false)
                }
                if isOver { state.epochHeld = nil }
                if isOver { state.isWatched = false }
                return (due, before - state.holds.count, isOver)
            }
            for waiting in due { waiting.body() }
            for _ in 0..<ended { hub.emit(ControlEvent(kind: .note, detail: "a backup ended")) }
            if isOver {
                // Lets the held epoch go on.
                maintenance.makeDurable()
                return
            }
        }
    }

    /// Holds the epoch. After others held it for `longestEpochHold`, the time begins anew:
    /// `makeDurable` has moved the epoch on just before.
    private func holdEpoch(_ state: inout State, now: Duration) {
        let isOver = state.epochHeld.map { now - $0 >= BackupHolds.longestEpochHold } ?? true
        if isOver { state.epochHeld = now }
        volume.holdEpoch(true)
    }

    private func forget(_ call: ControlCall) {
        state.withLock { $0.holds.removeAll { $0.call === call } }
    }
}
