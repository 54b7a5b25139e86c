/// How many programs ask, as far as one worker sees.
struct RecentPrograms {
    /// After so long without another one there is one program, nanoseconds.
    static let oneNanoseconds: UInt64 = 10_000_000

    /// Those of the last requests, gettid(2).
    private var last = SIMD8<UInt32>()
    private var next = 0
    private var current: UInt32 = 0
    /// The last request is not of the program that asked for the one before, and there are no
    /// others than these two.
    private(set) var takesTurns = false
    /// When the last request came, and when the last one that was not of the same program as the
    /// one before, nanoseconds.
    private var now: UInt64 = 0
    private var changed: UInt64 = 0

    /// Of a request; 0: nobody waits for it, and nothing changes. `now`: nanoseconds of the clock.
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

    /// Different ones among the last requests, eight at most.
    var count: Int {
        last.indices.count { index in
            last[index] != 0 && !(0..<index).contains { last[$0] == last[index] }
        }
    }

    /// What came before may have been asked by others, of others who serve.
    mutating func startAfresh(at now: UInt64) {
        self.now = now
        changed = now
    }

    /// Only one has asked for a while.
    @inline(__always)
    var isOne: Bool { now &- changed >= RecentPrograms.oneNanoseconds }
}
