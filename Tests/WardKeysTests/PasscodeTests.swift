import Testing
import WardCrypto
import WardSystem

@testable import WardKeys

@Suite("Passcodes")
struct PasscodeTests {
    private func normalized(_ bytes: [UInt8]) throws -> [UInt8] {
        try Passcode(utf8: try secret(bytes)).withSecret { $0.exposed() }
    }

    private func failure(_ bytes: [UInt8]) throws -> PasscodeError? {
        let given = try secret(bytes)
        do throws(PasscodeError) {
            _ = try Passcode(utf8: given)
            return nil
        } catch {
            return error
        }
    }

    @Test("ASCII stays as it is, blanks and newlines included")
    func ascii() throws {
        #expect(try normalized(Array(" a b\n".utf8)) == Array(" a b\n".utf8))
    }

    @Test(
        "other text is brought into NFC (Unicode Standard Annex 15)",
        arguments: [
            ("e\u{301}", "\u{e9}"), ("\u{212b}", "\u{c5}"), ("\u{1100}\u{1161}", "\u{ac00}"),
            ("q\u{307}\u{323}", "q\u{323}\u{307}"), ("\u{fb01}", "\u{fb01}"), ("🔑", "🔑"),
            ("\u{1d160}", "\u{1d158}\u{1d165}\u{1d16e}"),
        ])
    func nfc(_ given: String, _ expected: String) throws {
        #expect(try normalized(Array(given.utf8)) == Array(expected.utf8))
    }

    @Test("empty, too long, not UTF-8")
    func refused() throws {
        #expect(try failure([]) == .empty)
        #expect(try failure([UInt8](repeating: 65, count: 1024)) == nil)
        #expect(try failure([UInt8](repeating: 65, count: 1025)) == .tooLong(bytes: 1025))
        #expect(try failure([0x41, 0xff]) == .notUTF8)
        #expect(try failure([0xc0, 0x80]) == .notUTF8)
        // U+0958 is excluded from composition: 3 bytes become 6.
        let growing = Array(String(repeating: "\u{958}", count: 200).utf8)
        #expect(try failure(growing) == .tooLong(bytes: 1200))
    }

    // MARK: Policy

    @Test("delays after wrong passcodes (L6)")
    func delays() {
        var policy = PasscodePolicy()
        var now = Duration.seconds(5)
        let minutes: [Int64] = [0, 0, 0, 1, 5, 15, 60, 180, 480]
        for (index, minute) in minutes.enumerated() {
            #expect(policy.verdict(now: now) == .allowed)
            policy.count(now: now)
            let wait = Duration.seconds(minute * 60)
            #expect(policy.triesLeft == 9 - index)
            if minute > 0 {
                #expect(policy.verdict(now: now) == .tryLater(wait))
                #expect(
                    policy.verdict(now: now + wait - .milliseconds(1))
                        == .tryLater(.milliseconds(1)))
            }
            now += wait
        }
        policy.count(now: now)
        #expect(policy.verdict(now: now + .seconds(1 << 40)) == .disabled)
        policy.reset()
        #expect(policy == PasscodePolicy())
    }

    @Test("a wrong passcode counts once, whatever is tried in between (L5)")
    func sameWrongPasscode() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let store = try volume.open()
        #expect(try store.failure(opening: "a") == .wrongPasscode(triesLeft: 9))
        #expect(try store.failure(opening: "b") == .wrongPasscode(triesLeft: 8))
        for _ in 0..<5 {
            #expect(try store.failure(opening: "a") == .wrongPasscode(triesLeft: 8))
            #expect(try store.failure(opening: "b") == .wrongPasscode(triesLeft: 8))
        }
        #expect(try store.failure(opening: "right") == nil)
        #expect(store.attempts.wrongPasscodes == 0)
        #expect(try store.failure(opening: "a") == .wrongPasscode(triesLeft: 9))
    }

    @Test("the counter is on disk before the attempt is judged (L5)")
    func countedBeforeJudging() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let image = volume.storage.afterPowerLoss(.everything)
        for point in 0... {
            let storage = SimulatedKeyStorage(image, failingAt: point)
            var result: KeybagError.Code? = .system(.ioError)
            if let store = try? volume.open(storage) {
                result = try store.failure(opening: "wrong")
            }
            let later = SimulatedKeyStorage(storage.afterPowerLoss(.onlyWhatWasSynced))
            let counted = try volume.open(later).attempts.wrongPasscodes
            if case .wrongPasscode = result {
                #expect(counted == 1, "point \(point): judged, but not written down")
                break
            }
            #expect(result == .system(.ioError))
        }
    }

    @Test("delays hold, survive another process, and start again with the device")
    func delaysAcrossRestarts() throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let store = try volume.open(clock: clock.device())
        for wrong in ["a", "b", "c", "d"] { _ = try store.failure(opening: wrong) }
        #expect(try store.failure(opening: "right") == .tryLater(.seconds(60)))
        clock.advance(.seconds(40))
        let second = try volume.open(clock: clock.device())
        #expect(try second.failure(opening: "right") == .tryLater(.seconds(20)))
        // The daemon starts again.
        try second.restartPasscodeDelay()
        #expect(try second.failure(opening: "right") == .tryLater(.seconds(60)))
        clock.advance(.seconds(59))
        // The machine starts again: its clock has another identity.
        let third = try volume.open(clock: clock.device(identity: 8))
        #expect(try third.failure(opening: "right") == .tryLater(.seconds(60)))
        clock.advance(.seconds(60))
        try third.restartPasscodeDelay()
        #expect(try third.failure(opening: "right") == nil, "a delay that is over stays over")
    }

    @Test("after ten: disabled, or erased where that is on", arguments: [false, true])
    func afterTen(erases: Bool) throws {
        let volume = try SimulatedVolume(passcode: "right")
        let clock = TestClock()
        let store = try volume.open(clock: clock.device())
        try store.changePolicy(
            PolicyChange(erasesAfterTenWrongPasscodes: erases), passcode: try passcode("right"))
        for number in 1...9 {
            #expect(
                try store.failure(opening: "\(number)") == .wrongPasscode(triesLeft: 10 - number))
            clock.advance(.seconds(8 * 3600))
        }
        let tenth = try store.failure(opening: "10")
        clock.advance(.seconds(1 << 30))
        if erases {
            #expect(tenth == .erased)
            #expect(code { () throws(KeybagError) in _ = try volume.open() } == .erased)
        } else {
            #expect(tenth == .wrongPasscode(triesLeft: 0))
            #expect(try store.failure(opening: "right") == .disabled)
            #expect(try volume.open().failure(opening: "right") == .disabled)
        }
    }

    // MARK: Cost

    @Test("calibration aims at 250 ms and never goes below N=2^17, r=8, p=1")
    func calibration() {
        func calibrate(_ milliseconds: Int) -> Scrypt.Parameters {
            ScryptCost.calibrate { cost in
                .milliseconds(milliseconds) * Int(cost.n >> 17) * Int(cost.p)
            }
        }
        #expect(calibrate(4000) == .init(n: 1 << 17, r: 8, p: 1))
        #expect(calibrate(240) == .init(n: 1 << 17, r: 8, p: 1))
        #expect(calibrate(120) == .init(n: 1 << 18, r: 8, p: 1))
        #expect(calibrate(60) == .init(n: 1 << 18, r: 8, p: 2))
        #expect(calibrate(15) == .init(n: 1 << 18, r: 8, p: 8))
    }

    @Test("a policy that was forged without the passcode makes no later passcode cheap")
    func forgedCost() throws {
        let volume = try SimulatedVolume(passcode: "first", cost: .n(1 << 15))
        try volume.forgePolicy { $0.passcodeCost = .init(n: 1 << 10, r: 8, p: 1) }
        let store = try volume.open()
        #expect(store.policy.passcodeCost.n == 1 << 10, "the forgery is accepted")
        try store.changePasscode(try passcode("first"), to: try passcode("second"))
        #expect(try #require(store.cost).n >= 1 << 17)
        try volume.forgePolicy { $0.passcodeCost = .init(n: 1 << 10, r: 8, p: 1) }
        let again = try volume.open()
        try again.removePasscode(try passcode("second"))
        try again.setPasscode(try passcode("third"))
        #expect(try #require(again.cost).n >= 1 << 17)
    }

    /// A later passcode has today's cost, although the policy still has the old one.
    @Test("each change of the passcode calibrates anew; a volume for tests stays cheap")
    func calibratedAnew() throws {
        func cost(_ volume: SimulatedVolume) throws -> Scrypt.Parameters? {
            try volume.open().cost
        }
        let old = try SimulatedVolume(passcode: "first", cost: .n(1 << 15))
        #expect(try cost(old)?.n == 1 << 15)
        try old.open().changePasscode(try passcode("first"), to: try passcode("second"))
        let changed = try #require(try cost(old))
        #expect(changed.n >= 1 << 17 && changed.r == 8 && changed.p >= 1)
        #expect(try old.open().failure(opening: "second") == nil)

        let cheap = try SimulatedVolume(passcode: "first")
        let before = try cost(cheap)
        try cheap.open().changePasscode(try passcode("first"), to: try passcode("second"))
        #expect(try cost(cheap) == before)
        let store = try cheap.open()
        #expect(store.isForTests)
        try store.removePasscode(try passcode("second"))
        try store.setPasscode(try passcode("third"))
        #expect(try cost(cheap) == before)
    }
}
