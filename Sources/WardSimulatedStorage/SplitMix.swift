/// SplitMix64 (Steele, Lea, Flood 2014): the same seed gives the same numbers on every machine.
package struct SplitMix: RandomNumberGenerator, Sendable {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    /// True with the probability `count` / `of`.
    package mutating func chance(_ count: Int, in of: Int) -> Bool { below(of) < count }

    /// A number from 0 to `limit` − 1.
    package mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }

    package mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }
}
