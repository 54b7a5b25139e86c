/// How many wrong passcodes there may be, and how long to wait between them (semantics.md, L5 and L6). Pure.
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

    public init(wrongPasscodes: Int = 0, delayEnd: Duration? = nil) {
        self.wrongPasscodes = wrongPasscodes
        self.delayEnd = delayEnd
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

    /// The clock that `delayEnd` was of is gone: nobody knows how much of the delay has passed, so all of it runs again.
    public mutating func restartOnNewClock(now: Duration) {
        let delay = PasscodePolicy.delay(afterWrongPasscodes: wrongPasscodes)
        delayEnd = delay == .zero ? nil : now + delay
    }
}
