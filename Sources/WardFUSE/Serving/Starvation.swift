/// A thread's use of the CPUs, proc(5).
struct ThreadUse: Equatable {
    /// The thread runs, or waits only for a CPU.
    var isRunnable: Bool
    /// The time on a CPU until now. The time waiting for a CPU, until the thread last got one; how
    /// often it did.
    var nanoseconds: UInt64
    var waitedNanoseconds: UInt64 = 0
    var turns: UInt64
}

/// A thread that yields, gettid(2), and its use of the CPUs; nil where it can't be read.
struct ThreadSample: Equatable {
    var thread: Int32
    var use: ThreadUse?
}

/// Finds workers that yield and hardly get a CPU, because a program computes without a pause
/// (decision 0068).
struct Starvation {
    /// The time between two looks, nanoseconds.
    let intervalNanoseconds: UInt64

    private var last: [ThreadSample] = []
    private var pause = ServingLimits.firstPauseNanoseconds
    private var lastFound: UInt64?

    init(intervalNanoseconds: UInt64) { self.intervalNanoseconds = intervalNanoseconds }

    /// True once a starved worker was found.
    var hasFound: Bool { lastFound != nil }

    /// Returns the starved threads of `samples`. A thread is starved if it was runnable at both
    /// looks and did not run. So it is if it waited for most of the time, or can't be read.
    mutating func find(_ samples: [ThreadSample]) -> [Int32] {
        defer { last = samples }
        return samples.filter { sample in
            guard let use = sample.use else { return true }
            let sampleBefore = last.first { $0.thread == sample.thread }
            guard let before = sampleBefore?.use else { return false }
            if use.isRunnable, use == before { return true }
            let waited = use.waitedNanoseconds &- before.waitedNanoseconds
            return waited > intervalNanoseconds / 2
                && waited > 4 &* (use.nanoseconds &- before.nanoseconds)
        }.map(\.thread)
    }

    /// Notes that starved workers were found at `now`. Returns how long no worker may yield,
    /// nanoseconds.
    mutating func pauseNanoseconds(at now: UInt64) -> UInt64 {
        if let lastFound, now &- lastFound < 10 &* pause {
            pause = min(2 &* pause, ServingLimits.longestPauseNanoseconds)
        } else {
            pause = ServingLimits.firstPauseNanoseconds
        }
        lastFound = now
        return pause
    }
}
