import Glibc

/// The kernel's clocks, clock_gettime(2).
public enum SystemClock {
    /// Time since boot, suspend included (`CLOCK_BOOTTIME`): for grace periods and delays.
    public static func sinceBoot() -> Duration { read(CLOCK_BOOTTIME) }

    /// Time since boot, suspend excluded (`CLOCK_MONOTONIC`).
    public static func monotonic() -> Duration { read(CLOCK_MONOTONIC) }

    /// Time since 1970 (`CLOCK_REALTIME`); may jump.
    public static func sinceEpoch() -> Duration { read(CLOCK_REALTIME) }

    /// Nanoseconds of `CLOCK_MONOTONIC_COARSE`: takes a few nanoseconds to read, exact to a few
    /// milliseconds.
    public static func coarseNanoseconds() -> UInt64 { nanoseconds(CLOCK_MONOTONIC_COARSE) }

    /// Nanoseconds of `CLOCK_MONOTONIC`, for the times of each request.
    public static func nanoseconds() -> UInt64 { nanoseconds(CLOCK_MONOTONIC) }

    private static func nanoseconds(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        clock_gettime(clock, &time)
        return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
    }

    private static func read(_ clock: clockid_t) -> Duration {
        var time = timespec()
        clock_gettime(clock, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}
