import WardFormat

/// The lock state of one volume: takes events, returns effects. A pure value, so that every
/// transition can be tested.
///
/// The caller performs the effects in order. It calls `handle(.timer)` when the requested timer is
/// due, and `handle(.evicted)` when the eviction at the grace period's end is done. All times are
/// of one clock that runs through suspend (`SystemClock.sinceBoot()`, or a manual one).
///
/// ```
///                    unlocked                lock              timer, evicted
/// S1 beforeFirstUnlock ──▶ S2 unlocked ──▶ S3 locking ──────────▶ S4 locked
///        ▲                     ▲  ▲──────────────┘ unlocked             │
///        └── reboot, any state │  └─────────────────────────────────────┘ unlocked
///                              │ passcodeSet
///                        S0 noPasscode ◀── passcodeRemoved, any state
/// ```
///
/// Trusted hosts (docs/trusted-hosts.md) keep classes A and B open. While a host is connected, a
/// lock leads to S4h `lockedWithHost` instead of S3 and S4. A host that connects in S3 or S4 leads
/// there, too. When the last host ends, the lock goes through without a grace period. Before the
/// first unlock, and without a passcode, there are no hosts.
public struct LockStateMachine: Equatable, Sendable {
    public enum State: Equatable, Sendable {
        /// S0: no class is ever closed.
        case noPasscode
        /// S1
        case beforeFirstUnlock
        /// S2
        case unlocked
        /// S3: the grace period runs until this time; after it, the eviction runs.
        case locking(until: Duration)
        /// S4
        case locked
        /// S4h: locked, but trusted hosts keep classes A and B open.
        case lockedWithHost

        /// The state's name in semantics.md, the control protocol and `ward status`.
        public var rawName: String {
            switch self {
            case .noPasscode: "noPasscode"
            case .beforeFirstUnlock: "beforeFirstUnlock"
            case .unlocked: "unlocked"
            case .locking: "locking"
            case .locked: "locked"
            case .lockedWithHost: "lockedWithHost"
            }
        }
    }

    public private(set) var state: State
    /// The time when the present state was entered.
    public private(set) var since: Duration
    /// Whether there was an unlock since boot.
    public private(set) var firstUnlockHappened: Bool
    /// How long class CX stays open after the last unlock.
    public private(set) var userInactivePeriod: Duration
    /// When class CX expires; nil before the first unlock, after the expiry, and without a
    /// passcode.
    public private(set) var userInactiveDeadline: Duration?
    /// The number of connected trusted hosts. Zero before the first unlock, without a passcode, and
    /// in S3 and S4: with a host these would be S4h.
    public private(set) var hosts = 0
    /// The eviction was requested and its end was not reported yet.
    private var isEvicting = false
    private var timer: Duration?

    /// Begins with the state after boot. A volume without a passcode has all keys from the start.
    public init(
        hasPasscode: Bool, userInactivePeriod: Duration = .seconds(24 * 3600), now: Duration
    ) {
        state = hasPasscode ? .beforeFirstUnlock : .noPasscode
        since = now
        firstUnlockHappened = !hasPasscode
        self.userInactivePeriod = userInactivePeriod
    }

    /// The classes whose files can be opened in the present state (semantics.md, "States").
    public var available: ProtectionClassSet {
        switch state {
        case .noPasscode, .unlocked: return .all
        // During the eviction the gate decides; this is the result that it will have.
        case .locking: return isEvicting ? lockedClasses : .all
        case .beforeFirstUnlock: return .d
        case .locked: return lockedClasses
        case .lockedWithHost: return lockedClasses.union([.a, .b])
        }
    }

    private var lockedClasses: ProtectionClassSet {
        userInactiveDeadline == nil ? [.c, .d] : [.c, .d, .cx]
    }

    /// L8: false exactly while files of classes A and B can't be opened.
    public var isProtectedDataAvailable: Bool { available.isSuperset(of: [.a, .b]) }

    /// The rest of the grace period; nil outside of S3.
    public func graceRemaining(now: Duration) -> Duration? {
        guard case .locking(let end) = state else { return nil }
        return max(.zero, end - now)
    }

    /// Takes an event and returns its effects, in order. Never blocks.
    public mutating func handle(_ event: Event, now: Duration) -> [Effect] {
        var effects: [Effect] = []
        switch event {
        case .unlocked: unlock(now, &effects)
        case .lock(let grace, let endingHosts):
            if endingHosts { endHosts(&effects) }
            lock(grace, now, &effects)
        case .timer: timerFired(now, &effects)
        case .evicted: evicted(now, &effects)
        case .reboot: reboot(now, &effects)
        case .passcodeSet: passcodeSet(now, &effects)
        case .passcodeRemoved: passcodeRemoved(now, &effects)
        case .userInactivePeriodChanged(let period):
            if let deadline = userInactiveDeadline {
                userInactiveDeadline = deadline - userInactivePeriod + period
            }
            userInactivePeriod = period
        case .hostConnected: hostConnected(now, &effects)
        case .hostDisconnected:
            hosts = max(0, hosts - 1)
            lockIfNobodyHolds(now, &effects)
        case .hostsRevoked:
            endHosts(&effects)
            lockIfNobodyHolds(now, &effects)
        }
        rearm(&effects)
        return effects
    }

    private mutating func enter(_ newState: State, _ now: Duration) {
        state = newState
        since = now
    }

    private mutating func unlock(_ now: Duration, _ effects: inout [Effect]) {
        guard state != .noPasscode else { return }
        userInactiveDeadline = now + userInactivePeriod
        guard state != .unlocked else { return }
        enter(.unlocked, now)
        isEvicting = false
        effects.append(.admit(.all))
        if !firstUnlockHappened {
            firstUnlockHappened = true
            effects.append(.announce(.firstUnlock))
        }
        effects.append(.announce(.didBecomeAvailable))
    }

    private mutating func lock(_ grace: Duration, _ now: Duration, _ effects: inout [Effect]) {
        let end = now + max(.zero, grace)
        switch state {
        case .noPasscode:
            effects.append(.announce(.lockIgnored))
        case .beforeFirstUnlock, .locked:
            break
        case .lockedWithHost:
            lockIfNobodyHolds(now, &effects)
        case .unlocked where hosts > 0:
            enter(.lockedWithHost, now)
            effects.append(.announce(.heldOpen(hosts: hosts)))
            expireUserInactive(now, &effects)
        case .unlocked:
            enter(.locking(until: end), now)
            effects.append(.announce(.willBecomeUnavailable(timeLeft: end - now)))
            endGraceIfDue(now, &effects)
        case .locking(let earlier):
            // A later lock can't delay a lock that has begun. It ends a grace period that is over:
            // the event of the timer may come after this one.
            guard !isEvicting else { return }
            state = .locking(until: min(earlier, end))
            endGraceIfDue(now, &effects)
        }
    }

    private mutating func endGraceIfDue(_ now: Duration, _ effects: inout [Effect]) {
        guard case .locking(let end) = state, !isEvicting, now >= end else { return }
        isEvicting = true
        effects.append(.evict([.a, .b], keepOpenFiles: .b))
    }

    private mutating func timerFired(_ now: Duration, _ effects: inout [Effect]) {
        // The timer has run out, in time or early. `rearm` asks for another where one is needed.
        timer = nil
        endGraceIfDue(now, &effects)
        // An unlocked device is not inactive: CX expires only while locked, at once where its time
        // has passed.
        if state == .locked || state == .lockedWithHost { expireUserInactive(now, &effects) }
    }

    private mutating func expireUserInactive(_ now: Duration, _ effects: inout [Effect]) {
        guard let deadline = userInactiveDeadline, now >= deadline else { return }
        userInactiveDeadline = nil
        effects.append(.evict(.cx, keepOpenFiles: []))
        effects.append(.announce(.userInactive))
    }

    private mutating func evicted(_ now: Duration, _ effects: inout [Effect]) {
        // After an unlock or a reboot in between there is no news.
        guard case .locking = state, isEvicting else { return }
        isEvicting = false
        enter(.locked, now)
        effects.append(.announce(.locked))
        expireUserInactive(now, &effects)
    }

    private mutating func hostConnected(_ now: Duration, _ effects: inout [Effect]) {
        switch state {
        case .noPasscode, .beforeFirstUnlock:
            // The call was refused before this: no host opens a class that the passcode did not
            // open since boot.
            break
        case .unlocked, .lockedWithHost:
            hosts += 1
        case .locking, .locked:
            let wasOpen = isProtectedDataAvailable
            hosts += 1
            isEvicting = false
            enter(.lockedWithHost, now)
            effects.append(.admit([.a, .b]))
            effects.append(.announce(wasOpen ? .heldOpen(hosts: hosts) : .openedForHost))
            expireUserInactive(now, &effects)
        }
    }

    private mutating func endHosts(_ effects: inout [Effect]) {
        guard hosts > 0 else { return }
        hosts = 0
        effects.append(.endHosts)
    }

    /// Runs the lock that the last host delayed, without a grace period.
    private mutating func lockIfNobodyHolds(_ now: Duration, _ effects: inout [Effect]) {
        guard state == .lockedWithHost, hosts == 0 else { return }
        enter(.locking(until: now), now)
        effects.append(.announce(.willBecomeUnavailable(timeLeft: .zero)))
        endGraceIfDue(now, &effects)
    }

    private mutating func reboot(_ now: Duration, _ effects: inout [Effect]) {
        endHosts(&effects)
        effects.append(.announce(.reboot))
        // Without a passcode a boot gives all keys back at once.
        guard state != .noPasscode else { return }
        enter(.beforeFirstUnlock, now)
        isEvicting = false
        firstUnlockHappened = false
        userInactiveDeadline = nil
        effects.append(.evict([.a, .b, .c, .cx], keepOpenFiles: []))
    }

    private mutating func passcodeSet(_ now: Duration, _ effects: inout [Effect]) {
        if state == .noPasscode {
            enter(.unlocked, now)
            firstUnlockHappened = true
            userInactiveDeadline = now + userInactivePeriod
        }
        effects.append(.announce(.passcodeChanged))
    }

    private mutating func passcodeRemoved(_ now: Duration, _ effects: inout [Effect]) {
        guard state != .noPasscode else { return }
        endHosts(&effects)
        let wasUnlocked = state == .unlocked
        enter(.noPasscode, now)
        isEvicting = false
        firstUnlockHappened = true
        userInactiveDeadline = nil
        effects.append(.announce(.passcodeChanged))
        if !wasUnlocked {
            effects.append(.admit(.all))
            effects.append(.announce(.didBecomeAvailable))
        }
    }

    /// Starts or cancels the only timer, where its time changed.
    private mutating func rearm(_ effects: inout [Effect]) {
        let wanted: Duration? =
            switch state {
            case .locking(let end): isEvicting ? nil : end
            case .locked, .lockedWithHost: userInactiveDeadline
            case .noPasscode, .beforeFirstUnlock, .unlocked: nil
            }
        guard wanted != timer else { return }
        timer = wanted
        effects.append(wanted.map { .startTimer(at: $0) } ?? .cancelTimer)
    }
}
