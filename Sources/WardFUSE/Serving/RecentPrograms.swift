/// Counts the programs that ask, as far as one worker sees.
struct RecentPrograms {
    /// The threads that made the last requests, gettid(2).
    private var last = SIMD8<UInt32>()
    private var next = 0
    private var current: UInt32 = 0
    /// The last two requests came from different programs, and there are no others.
    private(set) var takesTurns = false
    /// When the last request came, and when the program last changed from one request to the next,
    /// nanoseconds.
    private var now: UInt64 = 0
    private var changed: UInt64 = 0

    /// Notes a request of the thread `program` at `now`, nanoseconds of the clock. No program waits
    /// for a request of 0, which changes nothing.
    @inline(__always)
    mutating func note(_ program: UInt32, at now: UInt64) {
        guard program != 0 else { return }
        last[next] = program
        next = (next &+ 1) % last.scalarCount
        self.now = now
        takesTurns = program != current && count <= 2
        if program != current {
            current = program
            changed = now
        }
    }

    /// The number of different programs among the last requests, eight at most.
    var count: Int {
        last.indices.count { index in
            last[index] != 0 && !(0..<index).contains { last[$0] == last[index] }
        }
    }

    /// Forgets when the program last changed: other workers may have served other programs before.
    mutating func startAfresh(at now: UInt64) {
        self.now = now
        changed = now
    }

    /// Only one program has asked for a while.
    @inline(__always)
    var isOne: Bool { now &- changed >= ServingLimits.oneProgramNanoseconds }
}
