import ArgumentParser

/// A duration such as "10s", "500ms", "2m", "1h", "1d", or a number of seconds.
struct DurationArgument: ExpressibleByArgument {
    let seconds: Double

    init?(argument: String) {
        let units: [(String, Double)] = [
            ("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("", 1),
        ]
        for (suffix, factor) in units where argument.hasSuffix(suffix) {
            guard let value = Double(argument.dropLast(suffix.count)), value.isFinite, value >= 0,
                value * factor <= 1e9
            else { return nil }
            seconds = value * factor
            return
        }
        return nil
    }
}
