/// Limits wrong passcodes: how many there may be, the delays between them, and which ones were
/// tried (semantics.md, L5 and L6). Pure.
///
/// An attempt is counted before it is judged, and remembered by a tag of the passcode. A power cut
/// between the two leaves `pendingTag`: the same passcode may be judged once more without counting.
/// So a right passcode never disables a volume, and a power cut gives no extra try.
public struct PasscodePolicy: Equatable, Sendable {
    /// After this many wrong passcodes the volume is disabled, or erased where that is on.
    public static let maximumWrongPasscodes = 10

    public enum Verdict: Equatable, Sendable {
        case allowed
        case tryLater(Duration)
        case disabled
    }

    /// The number of different wrong passcodes since the last right one.
    public private(set) var wrongPasscodes: Int
    /// When the running delay ends, on the injected clock.
    public private(set) var delayEnd: Duration?
    /// Tags of passcodes that were judged wrong; such a passcode does not count again.
    var wrongTags: [[UInt8]] = []
    /// The tag of an attempt that was counted but not judged yet.
    var pendingTag: [UInt8]?

    public init(wrongPasscodes: Int = 0, delayEnd: Duration? = nil) {
        self.wrongPasscodes = wrongPasscodes
        self.delayEnd = delayEnd
    }

    /// The policy where the attempts are lost: one try, after the longest delay. Without a try, a
    /// user who lost a file would lose the volume. With more tries, or earlier, deleting the file
    /// would help an attacker.
    static func forgotten(now: Duration) -> PasscodePolicy {
        let count = maximumWrongPasscodes - 1
        return PasscodePolicy(
            wrongPasscodes: count, delayEnd: now + delay(afterWrongPasscodes: count))
    }

    /// The decision about an attempt.
    enum Admission: Equatable {
        /// Judge it. `isNew`: it was counted just now, and the count must be stored first.
        case judge(isNew: Bool)
        /// The passcode was judged wrong before.
        case knownWrong
        case tryLater(Duration)
        case disabled
    }

    /// Admits or refuses the attempt whose passcode has this tag; counts a new one.
    mutating func admit(_ tag: [UInt8], now: Duration) -> Admission {
        if tag == pendingTag { return .judge(isNew: false) }
        switch verdict(now: now) {
        case .disabled: return .disabled
        case .tryLater(let wait): return .tryLater(wait)
        case .allowed: break
        }
        if wrongTags.contains(tag) { return .knownWrong }
        count(now: now)
        pendingTag = tag
        return .judge(isNew: true)
    }

    /// Notes that the last admitted attempt was wrong.
    mutating func judgedWrong() {
        if let pendingTag { wrongTags.append(pendingTag) }
        pendingTag = nil
    }

    /// The delay between the `count`-th wrong passcode and the next attempt.
    public static func delay(afterWrongPasscodes count: Int) -> Duration {
        switch count {
        case ...3: .zero
        case 4: .seconds(60)
        case 5: .seconds(5 * 60)
        case 6: .seconds(15 * 60)
        case 7: .seconds(3600)
        case 8: .seconds(3 * 3600)
        default: .seconds(8 * 3600)
        }
    }

    public var triesLeft: Int { max(0, PasscodePolicy.maximumWrongPasscodes - wrongPasscodes) }

    /// All tries were used and judged.
    var isExhausted: Bool { triesLeft == 0 && pendingTag == nil }

    /// Whether a passcode may be tried now.
    public func verdict(now: Duration) -> Verdict {
        if triesLeft == 0 { return .disabled }
        guard let delayEnd, delayEnd > now else { return .allowed }
        return .tryLater(delayEnd - now)
    }

    /// Counts an attempt as wrong. The caller stores this before it judges the attempt.
    public mutating func count(now: Duration) {
        wrongPasscodes += 1
        let delay = PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
        delayEnd = delay == .zero ? nil : now + delay
    }

    /// Forgets all attempts, after a right one.
    public mutating func reset() { self = PasscodePolicy() }

    /// Restarts a delay that still runs, after the device started again.
    public mutating func restart(now: Duration) {
        guard let delayEnd, delayEnd > now else { return }
        self.delayEnd = now + PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
    }

    /// Forgets a delay that is over, so that the next clock does not restart it. Returns whether
    /// there was one.
    mutating func endDelay(now: Duration) -> Bool {
        guard let delayEnd, delayEnd <= now else { return false }
        self.delayEnd = nil
        return true
    }

    /// Restarts the whole delay, because the clock of `delayEnd` is gone: the time passed is
    /// unknown.
    public mutating func restartOnNewClock(now: Duration) {
        let delay = PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
        delayEnd = delay == .zero ? nil : now + delay
    }
}
