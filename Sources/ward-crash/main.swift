import Glibc
import Synchronization
import WardSimulatedStorage
import WardSystem

// The program of `make crash`: random operations on volumes whose power goes after every call to a
// simulated disk.

let usage = """
    usage: ward-crash [--seconds N] [--seed N] [--seeds N] [--threads N] [--losses N]

    Runs seeds from --seed (by default the clock's) on, for --seconds (60) or as many as --seeds says, and stops
    after --losses (1). A seed replays a run: WARD_CRASH_SEED=N ward-crash --seeds 1
    """

func argument(_ name: String, _ fallback: UInt64) -> UInt64 {
    guard let index = CommandLine.arguments.firstIndex(of: name) else { return fallback }
    guard index + 1 < CommandLine.arguments.count,
        let value = UInt64(CommandLine.arguments[index + 1])
    else {
        print(usage)
        exit(64)
    }
    return value
}

let options = ["--seconds", "--seed", "--seeds", "--threads", "--losses"]
if CommandLine.arguments.dropFirst().contains(where: { $0.hasPrefix("-") && !options.contains($0) })
{
    print(usage)
    exit(64)
}
let clockSeed = UInt64(SystemClock.sinceEpoch().components.seconds) * 1000
let fromEnvironment = getenv("WARD_CRASH_SEED").flatMap { UInt64(String(cString: $0)) }
let first = fromEnvironment ?? argument("--seed", clockSeed)
let count = argument("--seeds", fromEnvironment == nil ? .max : 1)
let seconds = argument("--seconds", count == .max ? 60 : 1_000_000)
let threads = Int(argument("--threads", UInt64(max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))))))

let began = SystemClock.monotonic()
let end = began + .seconds(Int64(seconds))
let next = Atomic<UInt64>(0)
let report = CrashCampaign.run(
    seeds: sequence(first: first) { $0 &+ 1 }.prefix(Int(min(count, 1_000_000))), threads: threads,
    maximumLosses: Int(argument("--losses", 1)),
    settings: {
        var settings = CrashSettings.promised(seed: $0)
        settings.isTraced = getenv("WARD_CRASH_TRACE") != nil
        return settings
    }, until: { SystemClock.monotonic() >= end })
let took = SystemClock.monotonic() - began
let perMinute = Double(report.points) / (took / .seconds(1)) * 60
print(
    """
    simulated power cuts: \(report.points) crash points, \(report.operations) operations \
    (\(report.failures) with an error of the store), \(report.seeds) seeds from \(first), \
    \(report.healed) findings excused, \(report.losses.count) losses
    \(Int(perMinute)) crash points a minute with \(threads) threads
    """)
for loss in report.losses { print("ward-crash: loss: \(loss)") }
exit(report.losses.isEmpty ? 0 : 1)
