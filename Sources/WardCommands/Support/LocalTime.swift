import Glibc

/// Times in the local time zone.
enum LocalTime {
    /// The time of day, such as "14:03:10", from seconds since 1970.
    static func clock(_ sinceEpoch: time_t) -> String {
        var time = sinceEpoch
        var fields = tm()
        localtime_r(&time, &fields)
        return [fields.tm_hour, fields.tm_min, fields.tm_sec]
            .map { $0 < 10 ? "0\($0)" : "\($0)" }.joined(separator: ":")
    }

    /// The local time to the minute: "2026-11-21 14:03".
    static func minute(_ sinceEpoch: timespec) -> String {
        var time = sinceEpoch.tv_sec
        var fields = tm()
        localtime_r(&time, &fields)
        func padded(_ value: Int32) -> String { value < 10 ? "0\(value)" : "\(value)" }
        // A file's time may have any year.
        return
            "\(Int(fields.tm_year) + 1900)-\(padded(fields.tm_mon + 1))-\(padded(fields.tm_mday)) "
            + clock(sinceEpoch.tv_sec).prefix(5)
    }

    /// The local time of day of an RFC 3339 time in UTC, as in events. Other text is returned
    /// unchanged.
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
