import Glibc

/// Times of day in the time zone of whoever looks.
enum LocalTime {
    /// "14:03:10" of a time since 1970, seconds.
    static func clock(_ sinceEpoch: time_t) -> String {
        var time = sinceEpoch
        var fields = tm()
        localtime_r(&time, &fields)
        return [fields.tm_hour, fields.tm_min, fields.tm_sec]
            .map { $0 < 10 ? "0\($0)" : "\($0)" }.joined(separator: ":")
    }

    /// "2026-11-21 14:03".
    static func minute(_ sinceEpoch: timespec) -> String {
        var time = sinceEpoch.tv_sec
        var fields = tm()
        localtime_r(&time, &fields)
        func padded(_ value: Int32) -> String { value < 10 ? "0\(value)" : "\(value)" }
        // A file's time can be of any year that fits.
        return
            "\(Int(fields.tm_year) + 1900)-\(padded(fields.tm_mon + 1))-\(padded(fields.tm_mday)) "
            + clock(sinceEpoch.tv_sec).prefix(5)
    }

    /// The time of day of an RFC 3339 time in UTC, as events have it; what is not one stays as it
    /// is.
    static func clock(_ timestamp: String) -> String {
        let fields = timestamp.utf8.prefix(19).split { "-T:".utf8.contains($0) }
            .compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
        guard fields.count == 6, timestamp.hasSuffix("Z") else { return timestamp }
        var time = tm()
        (time.tm_year, time.tm_mon, time.tm_mday) = (fields[0] - 1900, fields[1] - 1, fields[2])
        (time.tm_hour, time.tm_min, time.tm_sec) = (fields[3], fields[4], fields[5])
        return clock(timegm(&time))
    }
}
