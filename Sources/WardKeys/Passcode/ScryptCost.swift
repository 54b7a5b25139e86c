import Glibc
import WardCrypto
import WardFormat
import WardSystem

/// The cost of deriving a key from a passcode.
public enum ScryptCost: Equatable, Sendable {
    /// About 250 ms on this machine now, and at least `minimum`.
    case calibrated
    /// N=2^10, r=1, p=1, the least that the format allows: for tests, which unlock thousands of
    /// times.
    case test
    /// N (a power of two, 2^10 to 2^24), r=8, p=1.
    case n(UInt64)

    /// The smallest cost that `calibrated` chooses: the minimum in OWASP's Password Storage Cheat
    /// Sheet of 2026, 128 MiB (decision 0087).
    public static let minimum = Scrypt.Parameters(n: 1 << 17, r: 8, p: 1)
    /// The smallest N that `calibrated` ever chose. A passcode with less is one of a test volume.
    static let leastRealN: UInt64 = 1 << 15
    static let targetDuration: Duration = .milliseconds(250)
    /// At most 256 MiB: a phone-sized machine must still open its volume.
    static let maximumN: UInt64 = 1 << 18

    /// Whether a keybag can hold the parameters.
    public var isPossible: Bool {
        guard case .n(let n) = self else { return true }
        return PasscodeDerivation.isPossible(.init(n: n, r: 8, p: 1))
    }

    /// The parameters. `calibrated` measures two runs at `minimum`.
    public func parameters() -> Scrypt.Parameters {
        switch self {
        case .test: .init(n: 1 << 10, r: 1, p: 1)
        case .n(let n): .init(n: n, r: 8, p: 1)
        case .calibrated: ScryptCost.calibrate(measure: ScryptCost.measure)
        }
    }

    /// Doubles N while that comes nearer to the target; from `maximumN` on, p grows instead.
    static func calibrate(measure: (Scrypt.Parameters) -> Duration?) -> Scrypt.Parameters {
        var cost = minimum
        guard let took = measure(cost), took > .zero else { return cost }
        var estimate = took
        // The next doubling is taken while it ends nearer to the target than this cost, about √2.
        while estimate * 2 <= targetDuration * 1.4 {
            if cost.n < maximumN {
                cost.n *= 2
            } else if cost.p < 16 {
                cost.p *= 2
            } else {
                break
            }
            estimate *= 2
        }
        return cost
    }

    /// The faster of two runs, because noise only slows down.
    private static func measure(_ cost: Scrypt.Parameters) -> Duration? {
        guard let sample = try? SecretBytes(zeroed: 16) else { return nil }
        var best: Duration?
        for _ in 0..<2 {
            let start = SystemClock.monotonic()
            guard
                (try? Scrypt.derive(
                    from: sample, salt: [UInt8](repeating: 0, count: 32), parameters: cost))
                    != nil
            else { return nil }
            let took = SystemClock.monotonic() - start
            best = min(best ?? took, took)
        }
        return best
    }
}
