/// How many wrong passcodes there may be, how long to wait between them, and which they were
/// (semantics.md, L5 and L6). Pure.
///
/// An attempt is counted before it is judged, and what was counted is remembered by a tag of the
/// passcode. A power cut between the two leaves `pendingTag`: the same passcode may be judged once
/// more without counting, so that a right one is never what disables a volume, and nobody wins a
/// try.
public struct PasscodePolicy: Equatable, Sendable {
    /// After this many the volume is disabled, or erased where that is on.
    public static let maximumWrongPasscodes = 10

    public enum Verdict: Equatable, Sendable {
        case allowed
        case tryLater(Duration)
        case disabled
    }

    /// Different wrong passcodes since the last right one.
    public private(set) var wrongPasscodes: Int
    /// When the delay that runs ends, on the injected clock.
    public private(set) var delayEnd: Duration?
    /// Tags of passcodes that were judged wrong: none of them counts again.
    var wrongTags: [[UInt8]] = []
    /// The tag of an attempt that was counted and not judged yet.
    var pendingTag: [UInt8]?

    public init(wrongPasscodes: Int = 0, delayEnd: Duration? = nil) {
        self.wrongPasscodes = wrongPasscodes
        self.delayEnd = delayEnd
    }

    /// Where it is not known what was tried: one try, after the longest delay. Fewer would disable
    /// the volume of somebody who lost a file; more, or sooner, would be worth losing it for.
    static func forgotten(now: Duration) -> PasscodePolicy {
        let count = maximumWrongPasscodes - 1
        return PasscodePolicy(
            wrongPasscodes: count, delayEnd: now + delay(afterWrongPasscodes: count))
    }

    /// What to do with an attempt.
    enum Admission: Equatable {
        /// Judge it. `isNew`: it was counted just now, which is to be stored first.
        case judge(isNew: Bool)
        /// It was judged wrong before.
        case knownWrong
        case tryLater(Duration)
        case disabled
    }

    /// Admits or refuses the attempt whose passcode has this tag, and counts it where it is a new
    /// one.
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

    /// The attempt that was admitted last is wrong.
    mutating func judgedWrong() {
        if let pendingTag { wrongTags.append(pendingTag) }
        pendingTag = nil
    }

    /// How long after the `count`-th wrong passcode the next one has to wait.
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

    /// All tries were used, and all of them judged.
    var isExhausted: Bool { triesLeft == 0 && pendingTag == nil }

    public func verdict(now: Duration) -> Verdict {
        if triesLeft == 0 { return .disabled }
        guard let delayEnd, delayEnd > now else { return .allowed }
        return .tryLater(delayEnd - now)
    }

    /// Counts an attempt as wrong; to be stored before it is judged.
    public mutating func count(now: Duration) {
        wrongPasscodes += 1
        let delay = PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
        delayEnd = delay == .zero ? nil : now + delay
    }

    /// The attempt was right.
    public mutating func reset() { self = PasscodePolicy() }

    /// The device started again during a delay: it begins again.
    public mutating func restart(now: Duration) {
        guard let delayEnd, delayEnd > now else { return }
        self.delayEnd = now + PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
    }

    /// Forgets a delay that is over, so that the next clock does not start it again; whether there
    /// was one.
    mutating func endDelay(now: Duration) -> Bool {
        guard let delayEnd, delayEnd <= now else { return false }
        self.delayEnd = nil
        return true
    }

    /// The clock that `delayEnd` was of is gone: nobody knows how much of the delay has passed, so
    /// all of it runs again.
    public mutating func restartOnNewClock(now: Duration) {
        let delay = PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
        delayEnd = delay == .zero ? nil : now + delay
    }
}
