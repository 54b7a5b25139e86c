import WardSystem

/// Seconds since 1970 that never run backwards, for expiry after days.
///
/// The wall clock can be set back, by its owner or by a thief of a host's record. So a time earlier
/// than the latest known one is ignored. That is the latest seen on this boot, with a clock that no
/// program sets, or the latest one written down. One case goes unseen: a machine that was off while
/// its clock was set back.
public struct SteadyTime: Sendable {
    private let start: UInt64
    private let startedAt: Duration
    private var latest: UInt64

    /// `wall` is the machine's seconds since 1970, `latest` the latest time ever seen. `sinceBoot`
    /// is now, on a clock that only goes forward.
    public init(wall: UInt64, latest: UInt64, sinceBoot: Duration) {
        start = max(wall, latest)
        startedAt = sinceBoot
        self.latest = start
    }

    /// The time now. With `wall` nil (a clock moved by hand) only the clock since boot counts.
    public mutating func now(wall: UInt64?, sinceBoot: Duration) -> UInt64 {
        let elapsed = UInt64(clamping: max(.zero, sinceBoot - startedAt).components.seconds)
        // A nonsense clock must not stop the process by an overflow.
        let (steady, overflow) = start.addingReportingOverflow(elapsed)
        latest = max(latest, wall ?? 0, overflow ? .max : steady)
        return latest
    }

    /// Seconds since 1970 by the wall clock.
    public static func wallClock() -> UInt64 {
        UInt64(clamping: SystemClock.sinceEpoch().components.seconds)
    }
}
