import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// The clock of grace periods, with its only timer. Only the lock thread uses the timer.
protocol TimeSource: AnyObject, Sendable {
    var now: Duration { get }
    /// Readable when the alarm is due; -1 where only `Advance` moves the clock.
    var alarmDescriptor: Int32 { get }
    /// Sets the alarm; nil for none.
    func setAlarm(at time: Duration?)
    /// Forgets an alarm that was due.
    func clearAlarm()
}

/// The clock `CLOCK_BOOTTIME`, which runs through suspend, with a timer (timerfd_create(2)).
final class SystemTime: TimeSource {
    let alarmDescriptor: Int32

    init() {
        alarmDescriptor = timerfd_create(CLOCK_BOOTTIME, Int32(TFD_CLOEXEC | TFD_NONBLOCK))
        precondition(alarmDescriptor >= 0, "no descriptor left to start with")
    }

    deinit { Syscall.close(alarmDescriptor) }

    var now: Duration { SystemClock.sinceBoot() }

    func setAlarm(at time: Duration?) {
        var setting = itimerspec()
        if let time {
            // The value zero would disarm the timer.
            let wanted = max(time, .nanoseconds(1))
            setting.it_value.tv_sec = Int(wanted.components.seconds)
            setting.it_value.tv_nsec = Int(wanted.components.attoseconds / 1_000_000_000)
        }
        timerfd_settime(alarmDescriptor, Int32(TFD_TIMER_ABSTIME), &setting, nil)
    }

    func clearAlarm() {
        var count: UInt64 = 0
        _ = read(alarmDescriptor, &count, 8)
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
    let alarmDescriptor: Int32 = -1

    var now: Duration { state.withLock { $0.now } }
    /// How far the clock was advanced.
    var advanced: Duration { now - ManualTime.start }
    func setAlarm(at time: Duration?) { state.withLock { $0.alarm = time } }
    func clearAlarm() {}

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
