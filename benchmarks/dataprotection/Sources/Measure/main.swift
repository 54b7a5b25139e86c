import DataProtection

// Measure DIRECTORY: the cost of calls with a class against the same calls without one. Rounds of
// both alternate, and the ratio is the median of the rounds' ratios.

let rounds = 15
let callsInRound = 100
let content = Data(repeating: 0x5a, count: 4000)

func seconds(_ body: (Int) throws -> Void) throws -> Double {
    let clock = ContinuousClock()
    let time = try clock.measure { for index in 0..<callsInRound { try body(index) } }
    return Double(time.components.seconds) + Double(time.components.attoseconds) * 1e-18
}

func median(_ values: [Double]) -> Double { values.sorted()[values.count / 2] }

func compare(_ what: String, _ one: (Int) throws -> Void, _ other: (Int) throws -> Void) throws {
    var ones: [Double] = []
    var others: [Double] = []
    // The first round fills caches.
    for round in 0...rounds {
        let times = (try seconds(one), try seconds(other))
        if round == 0 { continue }
        ones.append(times.0)
        others.append(times.1)
    }
    let ratio = median(zip(ones, others).map { $0 / $1 })
    func micro(_ values: [Double]) -> String {
        String(format: "%7.0f µs", median(values) / Double(callsInRound) * 1e6)
    }
    print(
        what.padding(toLength: 48, withPad: " ", startingAt: 0), micro(ones), micro(others),
        String(format: "%6.2f", ratio))
}

guard CommandLine.arguments.count == 2 else {
    print("usage: Measure DIRECTORY-ON-A-VOLUME")
    exit(64)
}
let directory = URL(fileURLWithPath: CommandLine.arguments[1])
let manager = FileManager.default

func url(_ name: String, _ index: Int) -> URL {
    directory.appendingPathComponent("\(name)\(index)")
}

print("what (4,000 bytes; one call of each, median)          with    without   ratio")
for (name, options) in [
    ("a new file", Data.WritingOptions.withoutOverwriting), ("atomically", .atomic),
    ("over a file", []),
] {
    try compare(
        "Data.write, \(name): with a class",
        { index in
            if options == .withoutOverwriting { try? manager.removeItem(at: url("a", index)) }
            try content.write(to: url("a", index), options: [options, .completeFileProtection])
        },
        { index in
            if options == .withoutOverwriting { try? manager.removeItem(at: url("b", index)) }
            try content.write(to: url("b", index), options: options)
        })
}
try compare(
    "attributesOfItem: beside lstat(2)",
    { index in _ = try manager.attributesOfItem(atPath: url("a", index).path) },
    { index in
        var status = stat()
        guard lstat(url("a", index).path, &status) == 0 else { throw CocoaError(.fileReadUnknown) }
    })
try compare(
    "resourceValues(forKeys: [.fileProtectionKey]): beside a size",
    { index in _ = try url("a", index).resourceValues(forKeys: [.fileProtectionKey]) },
    { index in _ = try url("a", index).resourceValues(forKeys: [.fileSizeKey]) })
