import Glibc
import WardSystem

/// Wall-clock time as text.
public enum Timestamp {
    /// Now, RFC 3339 with milliseconds, UTC: `2026-11-21T10:30:00.123Z`.
    public static func now() -> String { text(SystemClock.sinceEpoch()) }

    /// A time since 1970 as RFC 3339 with milliseconds, UTC.
    public static func text(_ sinceEpoch: Duration) -> String {
        var (whole, attoseconds) = sinceEpoch.components
        // Before 1970 both parts are negative.
        if attoseconds < 0 {
            whole -= 1
            attoseconds += 1_000_000_000_000_000_000
        }
        var seconds = time_t(whole)
        var fields = tm()
        gmtime_r(&seconds, &fields)
        let milliseconds = Int(attoseconds / 1_000_000_000_000_000)
        return padded(Int(fields.tm_year) + 1900, 4) + "-" + padded(Int(fields.tm_mon) + 1, 2) + "-"
            + padded(Int(fields.tm_mday), 2) + "T" + padded(Int(fields.tm_hour), 2) + ":"
            + padded(Int(fields.tm_min), 2) + ":" + padded(Int(fields.tm_sec), 2) + "."
            + padded(milliseconds, 3) + "Z"
    }

    private static func padded(_ value: Int, _ digits: Int) -> String {
        let text = String(value)
        return String(repeating: "0", count: max(0, digits - text.count)) + text
    }
}
