/// How many programs ask, as far as one worker sees.
struct RecentPrograms {
    /// Those of the last requests, gettid(2).
    private var last = SIMD8<UInt32>()
    private var next = 0

    /// Of a request; 0: nobody waits for it, and nothing changes.
    @inline(__always)
    mutating func note(_ program: UInt32) {
        guard program != 0 else { return }
        last[next] = program
        next = (next &+ 1) % last.scalarCount
    }

    /// Different ones, eight at most.
    var count: Int {
        last.indices.count { index in
            last[index] != 0 && !(0..<index).contains { last[$0] == last[index] }
        }
    }
}
