import Testing
import WardFormat

@testable import WardKeys

@Suite("Lock states")
struct LockStateMachineTests {
    static let day = Duration.seconds(24 * 3600)

    /// A machine in each state, at time 100 s, by the shortest way there.
    static func machine(_ state: String) -> LockStateMachine {
        var machine = LockStateMachine(hasPasscode: state != "noPasscode", now: .zero)
        if ["unlocked", "locking", "locked"].contains(state) {
            _ = machine.handle(.unlocked, now: .seconds(90))
        }
        if state == "locking" { _ = machine.handle(.lock(grace: .seconds(10)), now: .seconds(100)) }
        if state == "locked" {
            _ = machine.handle(.lock(grace: .zero), now: .seconds(99))
            _ = machine.handle(.evicted, now: .seconds(100))
        }
        return machine
    }

    static let states = ["noPasscode", "beforeFirstUnlock", "unlocked", "locking", "locked"]

    @Test("the keys of each state (semantics.md, States)")
    func keysByState() {
        let expected: [String: ProtectionClassSet] = [
            "noPasscode": .all, "beforeFirstUnlock": .d, "unlocked": .all, "locking": .all,
            "locked": [.c, .d, .cx],
        ]
        for name in Self.states {
            let machine = Self.machine(name)
            #expect(machine.state.rawName == name)
            #expect(machine.available == expected[name], "\(name)")
            #expect(
                machine.isProtectedDataAvailable
                    == (name != "beforeFirstUnlock" && name != "locked"), "L8 in \(name)")
        }
    }

    struct Transition: Sendable, CustomTestStringConvertible {
        let from: String
        let event: LockStateMachine.Event
        let to: String
        let effects: [LockStateMachine.Effect]
        var testDescription: String { "\(from), \(event): \(to)" }
    }

    static let unlockEffects: [LockStateMachine.Effect] = [
        .admit(.all), .announce(.didBecomeAvailable),
    ]
    static let bootEffects: [LockStateMachine.Effect] = [
        .announce(.reboot), .evict([.a, .b, .c, .cx], keepOpenFiles: []),
    ]
    static let table: [Transition] = [
        // Unlock
        .init(from: "noPasscode", event: .unlocked, to: "noPasscode", effects: []),
        .init(
            from: "beforeFirstUnlock", event: .unlocked, to: "unlocked",
            effects: [
                .admit(.all), .announce(.firstUnlock), .announce(.didBecomeAvailable),
            ]),
        .init(from: "unlocked", event: .unlocked, to: "unlocked", effects: []),
        .init(
            from: "locking", event: .unlocked, to: "unlocked",
            effects: unlockEffects + [.cancelTimer]),
        .init(
            from: "locked", event: .unlocked, to: "unlocked",
            effects: unlockEffects + [.cancelTimer]),
        // Lock
        .init(
            from: "noPasscode", event: .lock(grace: .seconds(10)), to: "noPasscode",
            effects: [.announce(.lockIgnored)]),
        .init(
            from: "beforeFirstUnlock", event: .lock(grace: .seconds(10)), to: "beforeFirstUnlock",
            effects: []),
        .init(
            from: "unlocked", event: .lock(grace: .seconds(10)), to: "locking",
            effects: [
                .announce(.willBecomeUnavailable(timeLeft: .seconds(10))),
                .startTimer(at: .seconds(110)),
            ]),
        .init(
            from: "unlocked", event: .lock(grace: .zero), to: "locking",
            effects: [
                .announce(.willBecomeUnavailable(timeLeft: .zero)),
                .evict([.a, .b], keepOpenFiles: .b),
            ]),
        .init(from: "locking", event: .lock(grace: .seconds(30)), to: "locking", effects: []),
        .init(
            from: "locking", event: .lock(grace: .seconds(2)), to: "locking",
            effects: [.startTimer(at: .seconds(102))]),
        .init(
            from: "locking", event: .lock(grace: .zero), to: "locking",
            effects: [.evict([.a, .b], keepOpenFiles: .b), .cancelTimer]),
        .init(from: "locked", event: .lock(grace: .zero), to: "locked", effects: []),
        // Timers that come early, late or without need
        .init(from: "noPasscode", event: .timer, to: "noPasscode", effects: []),
        .init(from: "beforeFirstUnlock", event: .timer, to: "beforeFirstUnlock", effects: []),
        .init(from: "unlocked", event: .timer, to: "unlocked", effects: []),
        .init(
            from: "locking", event: .timer, to: "locking",
            effects: [.startTimer(at: .seconds(110))]),
        .init(
            from: "locked", event: .timer, to: "locked",
            effects: [.startTimer(at: .seconds(90) + day)]),
        .init(from: "noPasscode", event: .evicted, to: "noPasscode", effects: []),
        .init(from: "unlocked", event: .evicted, to: "unlocked", effects: []),
        .init(from: "locking", event: .evicted, to: "locking", effects: []),
        .init(from: "locked", event: .evicted, to: "locked", effects: []),
        // Reboot, from any state
        .init(
            from: "noPasscode", event: .reboot, to: "noPasscode", effects: [.announce(.reboot)]),
        .init(
            from: "beforeFirstUnlock", event: .reboot, to: "beforeFirstUnlock",
            effects: bootEffects),
        .init(from: "unlocked", event: .reboot, to: "beforeFirstUnlock", effects: bootEffects),
        .init(
            from: "locking", event: .reboot, to: "beforeFirstUnlock",
            effects: bootEffects + [.cancelTimer]),
        .init(
            from: "locked", event: .reboot, to: "beforeFirstUnlock",
            effects: bootEffects + [.cancelTimer]),
        // Passcode
        .init(
            from: "noPasscode", event: .passcodeSet, to: "unlocked",
            effects: [.announce(.passcodeChanged)]),
        .init(
            from: "unlocked", event: .passcodeSet, to: "unlocked",
            effects: [.announce(.passcodeChanged)]),
        .init(
            from: "unlocked", event: .passcodeRemoved, to: "noPasscode",
            effects: [.announce(.passcodeChanged)]),
        .init(
            from: "locking", event: .passcodeRemoved, to: "noPasscode",
            effects: [.announce(.passcodeChanged)] + unlockEffects + [.cancelTimer]),
        .init(
            from: "locked", event: .passcodeRemoved, to: "noPasscode",
            effects: [.announce(.passcodeChanged)] + unlockEffects + [.cancelTimer]),
        .init(
            from: "beforeFirstUnlock", event: .passcodeRemoved, to: "noPasscode",
            effects: [.announce(.passcodeChanged)] + unlockEffects),
    ]

    @Test("every event in every state", arguments: table)
    func transition(_ transition: Transition) {
        var machine = Self.machine(transition.from)
        let effects = machine.handle(transition.event, now: .seconds(100))
        #expect(machine.state.rawName == transition.to)
        #expect(effects == transition.effects)
    }

    @Test("L1: the grace period's end evicts A and B, and only the end of that is S4")
    func graceEnds() {
        var machine = Self.machine("locking")
        #expect(machine.graceRemaining(now: .seconds(104)) == .seconds(6))
        #expect(
            machine.handle(.timer, now: .seconds(109)) == [.startTimer(at: .seconds(110))],
            "too early: asked for again")
        #expect(
            machine.handle(.timer, now: .seconds(110)) == [.evict([.a, .b], keepOpenFiles: .b)])
        #expect(machine.state == .locking(until: .seconds(110)))
        #expect(machine.available == [.c, .d, .cx] && !machine.isProtectedDataAvailable)
        #expect(machine.handle(.timer, now: .seconds(111)).isEmpty, "once")
        #expect(
            machine.handle(.evicted, now: .seconds(111))
                == [.announce(.locked), .startTimer(at: .seconds(90) + Self.day)])
        #expect(machine.state == .locked && machine.since == .seconds(111))
        #expect(machine.graceRemaining(now: .seconds(111)) == nil)
    }

    /// The event of the timer can wait behind the event of a lock.
    @Test("a lock after the grace period's end, before its timer: evicts now", arguments: [0, 10])
    func lockOvertakesTimer(grace: Int) {
        var machine = Self.machine("locking")
        let effects = machine.handle(.lock(grace: .seconds(grace)), now: .seconds(111))
        #expect(effects == [.evict([.a, .b], keepOpenFiles: .b), .cancelTimer])
        #expect(machine.handle(.timer, now: .seconds(112)) == [])
        _ = machine.handle(.evicted, now: .seconds(112))
        #expect(machine.state == .locked)
    }

    @Test("an unlock while the eviction runs: its end is no lock")
    func unlockDuringEviction() {
        var machine = Self.machine("unlocked")
        _ = machine.handle(.lock(grace: .zero), now: .seconds(100))
        #expect(machine.handle(.unlocked, now: .seconds(101)) == Self.unlockEffects)
        #expect(machine.handle(.evicted, now: .seconds(102)).isEmpty)
        #expect(machine.state == .unlocked && machine.available == .all)
    }

    @Test("CX can be opened for its period after the last unlock, and again after the next")
    func userInactive() {
        var machine = Self.machine("locked")
        let due = Duration.seconds(90) + Self.day
        #expect(machine.handle(.timer, now: due - .seconds(1)) == [.startTimer(at: due)])
        #expect(
            machine.handle(.timer, now: due)
                == [.evict(.cx, keepOpenFiles: []), .announce(.userInactive)])
        #expect(machine.available == [.c, .d])
        #expect(machine.handle(.unlocked, now: due + .seconds(5)) == Self.unlockEffects)
        #expect(machine.available == .all)
        // The volume was unlocked for longer than CX's period: the period ends with the next lock.
        _ = machine.handle(.lock(grace: .zero), now: due + Self.day * 2)
        #expect(
            machine.handle(.evicted, now: due + Self.day * 2)
                == [.announce(.locked), .evict(.cx, keepOpenFiles: []), .announce(.userInactive)])
        #expect(machine.available == [.c, .d])
    }

    @Test("an unlock while unlocked renews CX")
    func renewal() {
        var machine = Self.machine("unlocked")
        _ = machine.handle(.unlocked, now: .seconds(5000))
        #expect(machine.userInactiveDeadline == .seconds(5000) + Self.day)
    }

    @Test("firstUnlock is announced once per boot")
    func firstUnlock() {
        var machine = Self.machine("locked")
        #expect(machine.firstUnlockHappened)
        #expect(
            machine.handle(.unlocked, now: .seconds(200)) == Self.unlockEffects + [.cancelTimer])
        _ = machine.handle(.reboot, now: .seconds(201))
        #expect(!machine.firstUnlockHappened)
        #expect(
            machine.handle(.unlocked, now: .seconds(202)).contains(.announce(.firstUnlock)))
    }

    @Test("after a passcode was set in S0 a lock protects")
    func firstPasscode() {
        var machine = Self.machine("noPasscode")
        _ = machine.handle(.passcodeSet, now: .seconds(1))
        _ = machine.handle(.lock(grace: .zero), now: .seconds(2))
        _ = machine.handle(.evicted, now: .seconds(3))
        #expect(machine.state == .locked && machine.available == [.c, .d, .cx])
    }
}
