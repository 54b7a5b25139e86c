import WardSystem

/// Seconds since 1970 that never run backwards, for what expires after days.
///
/// The wall clock can be set back, by its owner or by somebody who found a host's record. So no
/// time is believed that is earlier than the latest that was seen, on this boot (on a clock that
/// nobody sets) or, as written down, on an earlier one. What can't be seen is how long a machine
/// was off whose clock was set back meanwhile.
public struct SteadyTime: Sendable {
    private let start: UInt64
    private let startedAt: Duration
    private var latest: UInt64

    /// `wall`: seconds since 1970 as the machine has them. `latest`: the latest time ever seen.
    /// `sinceBoot`: now, on a clock that only goes forward.
    public init(wall: UInt64, latest: UInt64, sinceBoot: Duration) {
        start = max(wall, latest)
        startedAt = sinceBoot
        self.latest = start
    }

    /// `wall` nil: where time is moved by hand, the clock since boot alone counts.
    public mutating func now(wall: UInt64?, sinceBoot: Duration) -> UInt64 {
        let elapsed = UInt64(clamping: max(.zero, sinceBoot - startedAt).components.seconds)
        // A clock of nonsense must not stop the process.
        let (steady, overflow) = start.addingReportingOverflow(elapsed)
        latest = max(latest, wall ?? 0, overflow ? .max : steady)
        return latest
    }

    /// Seconds since 1970 on the wall.
    public static func wallClock() -> UInt64 {
        UInt64(clamping: SystemClock.sinceEpoch().components.seconds)
    }
}
