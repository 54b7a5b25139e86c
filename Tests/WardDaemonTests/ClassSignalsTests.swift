import Testing
import WardControl
import WardFormat

@testable import WardDaemon

/// Signals as ProtectedData has them, one for each class.
@Suite struct ClassSignalsTests {
    private let all = ProtectionClassSet.all
    private let afterLock: ProtectionClassSet = [.c, .d, .cx]

    private func update(
        _ signals: inout ClassSignals, _ available: ProtectionClassSet,
        closing: ProtectionClassSet = [], in seconds: Double? = nil
    ) -> [String] {
        signals.update(available: available, closing: closing, secondsLeft: seconds, state: "s")
            .map { event in
                let left = event.secondsLeft.map { " \($0)" } ?? ""
                return "\(event.kind) \(event.protectionClass ?? "?")\(left)"
            }
    }

    @Test("nobody is told what was so from the start")
    func start() {
        var signals = ClassSignals()
        #expect(update(&signals, .d).isEmpty)
        #expect(update(&signals, .d).isEmpty)
    }

    @Test("first unlock, lock with its time left, unlock")
    func cycle() {
        var signals = ClassSignals()
        _ = update(&signals, .d)
        #expect(
            update(&signals, all) == [
                "didBecomeAvailable A", "didBecomeAvailable B", "didBecomeAvailable C",
                "didBecomeAvailable CX",
            ])
        #expect(
            update(&signals, all, closing: [.a, .b], in: 10) == [
                "willBecomeUnavailable A 10.0", "willBecomeUnavailable B 10.0",
            ])
        #expect(update(&signals, all, closing: [.a, .b], in: 5).isEmpty, "told once")
        #expect(
            update(&signals, afterLock) == ["didBecomeUnavailable A", "didBecomeUnavailable B"])
        #expect(update(&signals, all) == ["didBecomeAvailable A", "didBecomeAvailable B"])
    }

    @Test("a lock that was cancelled is taken back")
    func cancelled() {
        var signals = ClassSignals()
        _ = update(&signals, all)
        _ = update(&signals, all, closing: [.a, .b], in: 10)
        #expect(update(&signals, all) == ["didBecomeAvailable A", "didBecomeAvailable B"])
    }

    @Test("CX expires alone; a reboot takes all but D")
    func expiryAndReboot() {
        var signals = ClassSignals()
        _ = update(&signals, afterLock)
        #expect(update(&signals, [.c, .d]) == ["didBecomeUnavailable CX"])
        #expect(update(&signals, .d) == ["didBecomeUnavailable C"])
    }
}
