import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// The clock of grace periods, with its only timer. Only the lock thread sets the timer, and one
/// other thread waits for it.
protocol TimeSource: AnyObject, Sendable {
    var now: Duration { get }
    /// Sets the alarm; nil for none.
    func setAlarm(at time: Duration?)
    /// Waits until the alarm is due. False after `endAlarms`, or where only `Advance` moves the
    /// clock.
    func awaitAlarm() -> Bool
    /// Ends `awaitAlarm`. No alarm is set any more.
    func endAlarms()
}

/// The clock `CLOCK_BOOTTIME`, which runs through suspend, with a timer (timerfd_create(2)).
final class SystemTime: TimeSource {
    private let timer: Int32
    private let hasEnded = Atomic(false)

    init() {
        timer = timerfd_create(CLOCK_BOOTTIME, Int32(TFD_CLOEXEC))
        precondition(timer >= 0, "no descriptor left to start with")
    }

    deinit { Syscall.close(timer) }

    var now: Duration { SystemClock.sinceBoot() }

    func setAlarm(at time: Duration?) {
        var setting = itimerspec()
        if let time {
            // The value zero would disarm the timer.
            let wanted = max(time, .nanoseconds(1))
            setting.it_value.tv_sec = Int(wanted.components.seconds)
            setting.it_value.tv_nsec = Int(wanted.components.attoseconds / 1_000_000_000)
        }
        timerfd_settime(timer, Int32(TFD_TIMER_ABSTIME), &setting, nil)
    }

    /// Sleeps in read(2). It works with any `RLIMIT_NOFILE`; poll(2) takes no more descriptors than
    /// that limit.
    func awaitAlarm() -> Bool {
        var count: UInt64 = 0
        while !hasEnded.load(ordering: .sequentiallyConsistent) {
            if read(timer, &count, 8) == 8 { break }
        }
        return !hasEnded.load(ordering: .sequentiallyConsistent)
    }

    func endAlarms() {
        hasEnded.store(true, ordering: .sequentiallyConsistent)
        setAlarm(at: .zero)
    }
}

/// A clock that moves only when it is advanced; for tests.
final class ManualTime: TimeSource {
    private static let start = Duration.seconds(1)

    private struct State {
        var now = ManualTime.start
        var alarm: Duration?
    }

    private let state = Mutex(State())

    var now: Duration { state.withLock { $0.now } }
    /// How far the clock was advanced.
    var advanced: Duration { now - ManualTime.start }
    func setAlarm(at time: Duration?) { state.withLock { $0.alarm = time } }
    func awaitAlarm() -> Bool { false }
    func endAlarms() {}

    /// Moves to `end`, or to an earlier alarm; in that case clears the alarm and returns true.
    func advance(to end: Duration) -> Bool {
        state.withLock { state in
            if let alarm = state.alarm, alarm <= end {
                state.now = max(state.now, alarm)
                state.alarm = nil
                return true
            }
            state.now = max(state.now, end)
            return false
        }
    }
}

extension Duration {
    var inSeconds: Double { Double(components.seconds) + Double(components.attoseconds) / 1e18 }
}
