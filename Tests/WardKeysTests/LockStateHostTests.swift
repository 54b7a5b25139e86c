import Testing
import WardFormat

@testable import WardKeys

/// Trusted hosts in the lock state machine: state S4h, and the ways into it and out of it.
@Suite("Lock states with trusted hosts")
struct LockStateHostTests {
    typealias Machine = LockStateMachine
    static let day = LockStateMachineTests.day

    /// The machine of `LockStateMachineTests.machine`, with hosts: "unlocked+2", "lockedWithHost"
    /// (one), "lockedWithHost+2".
    static func machine(_ name: String) -> Machine {
        let parts = name.split(separator: "+")
        let state = String(parts[0])
        let hosts = parts.count > 1 ? Int(parts[1])! : state == "lockedWithHost" ? 1 : 0
        var machine = LockStateMachineTests.machine(
            state == "lockedWithHost" ? "unlocked" : state)
        for _ in 0..<hosts { _ = machine.handle(.hostConnected, now: .seconds(95)) }
        if state == "lockedWithHost" {
            _ = machine.handle(.lock(grace: .seconds(10)), now: .seconds(99))
        }
        return machine
    }

    struct Transition: Sendable, CustomTestStringConvertible {
        let from: String
        let event: Machine.Event
        let to: String
        let hosts: Int
        let effects: [Machine.Effect]
        var testDescription: String { "\(from), \(event): \(to)" }
    }

    static let lockEffects: [Machine.Effect] = [
        .announce(.willBecomeUnavailable(timeLeft: .zero)), .evict([.a, .b], keepOpenFiles: .b),
    ]
    static let boot = LockStateMachineTests.bootEffects
    static let due = Machine.Effect.startTimer(at: .seconds(90) + day)
    static let table: [Transition] = [
        // A host connects.
        .init(
            from: "noPasscode", event: .hostConnected, to: "noPasscode", hosts: 0, effects: []),
        .init(
            from: "beforeFirstUnlock", event: .hostConnected, to: "beforeFirstUnlock", hosts: 0,
            effects: []),
        .init(from: "unlocked", event: .hostConnected, to: "unlocked", hosts: 1, effects: []),
        .init(
            from: "locking", event: .hostConnected, to: "lockedWithHost", hosts: 1,
            effects: [.admit([.a, .b]), .announce(.heldOpen(hosts: 1)), due]),
        .init(
            from: "locked", event: .hostConnected, to: "lockedWithHost", hosts: 1,
            effects: [.admit([.a, .b]), .announce(.openedForHost)]),
        .init(
            from: "lockedWithHost", event: .hostConnected, to: "lockedWithHost", hosts: 2,
            effects: []),
        // A lock while a host is connected.
        .init(
            from: "unlocked+1", event: .lock(grace: .seconds(10)), to: "lockedWithHost", hosts: 1,
            effects: [.announce(.heldOpen(hosts: 1)), due]),
        .init(
            from: "unlocked+2", event: .lock(grace: .zero), to: "lockedWithHost", hosts: 2,
            effects: [.announce(.heldOpen(hosts: 2)), due]),
        .init(
            from: "lockedWithHost", event: .lock(grace: .zero), to: "lockedWithHost", hosts: 1,
            effects: []),
        // A lock that ends the hosts' connections: sleep, shutdown, unmount.
        .init(
            from: "unlocked+2", event: .lock(grace: .zero, endingHosts: true), to: "locking",
            hosts: 0, effects: [.endHosts] + lockEffects),
        .init(
            from: "unlocked+1", event: .lock(grace: .seconds(10), endingHosts: true),
            to: "locking", hosts: 0,
            effects: [
                .endHosts, .announce(.willBecomeUnavailable(timeLeft: .seconds(10))),
                .startTimer(at: .seconds(110)),
            ]),
        .init(
            from: "lockedWithHost+2", event: .lock(grace: .zero, endingHosts: true), to: "locking",
            hosts: 0, effects: [.endHosts] + lockEffects + [.cancelTimer]),
        .init(
            from: "lockedWithHost", event: .lock(grace: .seconds(10), endingHosts: true),
            to: "locking", hosts: 0, effects: [.endHosts] + lockEffects + [.cancelTimer]),
        .init(
            from: "locked", event: .lock(grace: .zero, endingHosts: true), to: "locked", hosts: 0,
            effects: []),
        // The end of a connection.
        .init(
            from: "unlocked+1", event: .hostDisconnected, to: "unlocked", hosts: 0, effects: []),
        .init(
            from: "unlocked+2", event: .hostDisconnected, to: "unlocked", hosts: 1, effects: []),
        .init(
            from: "lockedWithHost+2", event: .hostDisconnected, to: "lockedWithHost", hosts: 1,
            effects: []),
        .init(
            from: "lockedWithHost", event: .hostDisconnected, to: "locking", hosts: 0,
            effects: lockEffects + [.cancelTimer]),
        .init(
            from: "lockedWithHost+2", event: .hostsRevoked, to: "locking", hosts: 0,
            effects: [.endHosts] + lockEffects + [.cancelTimer]),
        .init(
            from: "unlocked+2", event: .hostsRevoked, to: "unlocked", hosts: 0,
            effects: [.endHosts]),
        .init(from: "unlocked", event: .hostsRevoked, to: "unlocked", hosts: 0, effects: []),
        .init(from: "locked", event: .hostDisconnected, to: "locked", hosts: 0, effects: []),
        // Other events.
        .init(
            from: "lockedWithHost", event: .unlocked, to: "unlocked", hosts: 1,
            effects: LockStateMachineTests.unlockEffects + [.cancelTimer]),
        .init(
            from: "lockedWithHost", event: .timer, to: "lockedWithHost", hosts: 1, effects: [due]),
        .init(
            from: "lockedWithHost", event: .evicted, to: "lockedWithHost", hosts: 1, effects: []),
        .init(
            from: "unlocked+1", event: .reboot, to: "beforeFirstUnlock", hosts: 0,
            effects: [.endHosts] + boot),
        .init(
            from: "lockedWithHost+2", event: .reboot, to: "beforeFirstUnlock", hosts: 0,
            effects: [.endHosts] + boot + [.cancelTimer]),
        .init(
            from: "lockedWithHost", event: .passcodeRemoved, to: "noPasscode", hosts: 0,
            effects: [.endHosts, .announce(.passcodeChanged)]
                + LockStateMachineTests.unlockEffects + [.cancelTimer]),
        .init(
            from: "lockedWithHost", event: .passcodeSet, to: "lockedWithHost", hosts: 1,
            effects: [.announce(.passcodeChanged)]),
    ]

    @Test("every event with hosts in every state", arguments: table)
    func transition(_ transition: Transition) {
        var machine = Self.machine(transition.from)
        let effects = machine.handle(transition.event, now: .seconds(100))
        #expect(machine.state.rawName == transition.to)
        #expect(machine.hosts == transition.hosts)
        #expect(effects == transition.effects)
    }

    @Test("S4h: A and B are open, CX as in S4, and L8 says so")
    func classes() {
        var machine = Self.machine("lockedWithHost")
        #expect(machine.available == [.a, .b, .c, .d, .cx])
        #expect(machine.isProtectedDataAvailable)
        #expect(machine.graceRemaining(now: .seconds(100)) == nil)
        let due = Duration.seconds(90) + Self.day
        #expect(
            machine.handle(.timer, now: due)
                == [.evict(.cx, keepOpenFiles: []), .announce(.userInactive)])
        #expect(machine.state == .lockedWithHost && machine.available == [.a, .b, .c, .d])
        #expect(machine.handle(.hostDisconnected, now: due) == Self.lockEffects)
        #expect(machine.available == [.c, .d] && !machine.isProtectedDataAvailable)
        #expect(machine.handle(.evicted, now: due) == [.announce(.locked)])
        #expect(machine.state == .locked)
    }

    @Test("a lock long after the last unlock closes CX, hosts or not")
    func inactiveAtTheLock() {
        var machine = Self.machine("unlocked+1")
        #expect(
            machine.handle(.lock(grace: .zero), now: Self.day * 2)
                == [
                    .announce(.heldOpen(hosts: 1)), .evict(.cx, keepOpenFiles: []),
                    .announce(.userInactive),
                ])
        #expect(machine.available == [.a, .b, .c, .d])
    }

    @Test("a host that connects while the eviction runs undoes it, as an unlock would")
    func duringEviction() {
        var machine = Self.machine("unlocked")
        _ = machine.handle(.lock(grace: .zero), now: .seconds(100))
        #expect(
            machine.handle(.hostConnected, now: .seconds(101)).prefix(2)
                == [.admit([.a, .b]), .announce(.openedForHost)])
        #expect(machine.handle(.evicted, now: .seconds(102)).isEmpty)
        #expect(machine.state == .lockedWithHost)
    }

    // MARK: Every order of four events, from every state

    static let events: [Machine.Event] = [
        .unlocked, .lock(grace: .zero), .lock(grace: .seconds(10)),
        .lock(grace: .zero, endingHosts: true), .timer, .reboot, .passcodeSet, .passcodeRemoved,
        .hostConnected, .hostDisconnected, .hostsRevoked,
    ]

    /// A caller that performs every effect. Its gate says which files can be opened.
    struct Caller {
        var machine: Machine
        var gate: ProtectionClassSet
        var now = Duration.seconds(100)

        init(_ machine: Machine) {
            self.machine = machine
            gate = machine.available
        }

        mutating func perform(_ event: Machine.Event) -> [Machine.Effect] {
            // Timers fall due, but CX's not every time.
            now += .seconds(11)
            var effects = machine.handle(event, now: now)
            var hasEvicted = false
            for effect in effects {
                switch effect {
                case .evict(let classes, _):
                    gate.subtract(classes)
                    hasEvicted = true
                case .admit(let classes): gate.formUnion(classes)
                default: break
                }
            }
            if hasEvicted {
                let more = machine.handle(.evicted, now: now)
                for case .evict(let classes, _) in more { gate.subtract(classes) }
                effects += more
            }
            return effects
        }

        /// An invariant that is broken now, in words; nil if all hold.
        var violation: String? {
            if gate != machine.available { return "the gate is \(gate), not \(machine.available)" }
            switch machine.state {
            case .beforeFirstUnlock:
                if gate != .d || machine.hosts != 0 { return "before first unlock: \(gate)" }
            case .noPasscode:
                if machine.hosts != 0 { return "hosts without a passcode" }
            case .locked:
                if gate.contains(.a) || gate.contains(.b) { return "locked, and A or B is open" }
                if machine.hosts != 0 { return "hosts in S4" }
            case .locking:
                if machine.hosts != 0 { return "hosts in S3" }
            case .lockedWithHost:
                if machine.hosts == 0 { return "held open by nobody" }
                if !gate.isSuperset(of: [.a, .b]) { return "A or B is closed to a host" }
            case .unlocked: break
            }
            let both = gate.isSuperset(of: [.a, .b])
            return machine.isProtectedDataAvailable == both ? nil : "L8 says otherwise"
        }
    }

    @Test("whatever happens in whatever order: no host opens S1, and nobody holds A without one")
    func everyOrder() {
        var checked = 0
        func explore(_ caller: Caller, _ depth: Int, _ way: [Machine.Event]) {
            for event in Self.events {
                var next = caller
                let before = caller.machine
                let effects = next.perform(event)
                checked += 1
                if let violation = next.violation {
                    Issue.record("\(violation) after \(way + [event])")
                    return
                }
                if event == .hostDisconnected || event == .hostsRevoked,
                    before.state == .lockedWithHost, next.machine.hosts == 0
                {
                    #expect(next.machine.state == .locked, "at once: \(way + [event])")
                    #expect(effects.contains(.announce(.locked)), "\(way + [event])")
                }
                if depth > 1 { explore(next, depth - 1, way + [event]) }
            }
        }
        for state in LockStateMachineTests.states + ["unlocked+1", "lockedWithHost+2"] {
            explore(Caller(LockStateHostTests.machine(state)), 4, [])
        }
        #expect(checked == 7 * (11 + 121 + 1331 + 14641))
    }
}
