import WardFormat

/// The lock state of one volume: an event in, effects out. Pure, so that every transition can be
/// tested.
///
/// The caller performs the effects in their order, calls `handle(.timer)` when the timer it was
/// asked to start is due, and `handle(.evicted)` when the eviction of the grace period's end is
/// done. Times are those of one clock that runs through suspend (`SystemClock.sinceBoot()`, or a
/// manual one).
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
/// Trusted hosts (docs/trusted-hosts.md) hold classes A and B open: while one is connected a lock
/// leads to S4h `lockedWithHost` in place of S3 and S4, a host that connects in S3 or S4 leads
/// there too, and when the last of them ends the lock goes through without a grace period. Before
/// the first unlock, and without a passcode, there are none.
public struct LockStateMachine: Equatable, Sendable {
    public enum State: Equatable, Sendable {
        /// S0: nothing is ever withheld.
        case noPasscode
        /// S1
        case beforeFirstUnlock
        /// S2
        case unlocked
        /// S3: the grace period runs until then; past it, the eviction is under way.
        case locking(until: Duration)
        /// S4
        case locked
        /// S4h: locked, and trusted hosts hold classes A and B open.
        case lockedWithHost

        /// As semantics.md, the control protocol and `ward status` spell it.
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

    public enum Event: Equatable, Sendable {
        /// The passcode slot was opened: all class keys are in the keyring.
        case unlocked
        /// Lock, with this grace period (0: at once). A second lock can only bring the end nearer.
        /// `endingHosts`: whatever trusted hosts are connected (sleep, shutdown, unmount); else
        /// they go on.
        case lock(grace: Duration, endingHosts: Bool = false)
        /// The timer that was asked for is due. Harmless at any other time.
        case timer
        /// The eviction that the grace period's end asked for is done: class A is gone.
        case evicted
        /// Back to the state after boot.
        case reboot
        /// A first passcode was set.
        case passcodeSet
        /// The passcode was removed.
        case passcodeRemoved
        /// The policy was changed: CX is to stay for this long after an unlock, the last one
        /// included.
        case userInactivePeriodChanged(Duration)
        /// A trusted host's slot was opened: A's key and B's private key are in the keyring.
        case hostConnected
        /// The connection of a trusted host ended.
        case hostDisconnected
        /// No host is trusted any more: all of their connections end.
        case hostsRevoked
    }

    /// What programs are told.
    public enum Announcement: Equatable, Sendable {
        /// Class A and B files can't be opened from `secondsLeft` on.
        case willBecomeUnavailable(timeLeft: Duration)
        /// The grace period is over and class A is gone.
        case locked
        /// Everything can be opened. The first time since boot, `firstUnlock` comes just before it.
        case didBecomeAvailable
        case firstUnlock
        case reboot
        /// Class CX can't be opened until the next unlock.
        case userInactive
        /// A passcode was set, or removed.
        case passcodeChanged
        /// A lock of a volume without a passcode: nothing changes.
        case lockIgnored
        /// Locked, and A and B stay open for trusted hosts, this many.
        case heldOpen(hosts: Int)
        /// A and B, which could not be opened, can be: for a trusted host, and for everybody with
        /// it.
        case openedForHost
    }

    public enum Effect: Equatable, Sendable {
        /// Run the lock recipe for these classes; for `keepOpenFiles`, keys of open files stay
        /// until their last close. Report the end of the one at the grace period's end by
        /// `.evicted`.
        case evict(ProtectionClassSet, keepOpenFiles: ProtectionClassSet)
        /// Open the gate for these classes: their keys are in the keyring.
        case admit(ProtectionClassSet)
        /// Call `handle(.timer)` at this time; replaces an earlier timer.
        case startTimer(at: Duration)
        case cancelTimer
        /// End the connections of all trusted hosts; none of them is reported by
        /// `.hostDisconnected`.
        case endHosts
        case announce(Announcement)
    }

    public private(set) var state: State
    /// When the present state was entered.
    public private(set) var since: Duration
    /// Whether there was an unlock since boot.
    public private(set) var firstUnlockHappened: Bool
    /// How long after the last unlock class CX can be opened.
    public private(set) var userInactivePeriod: Duration
    /// When class CX expires; nil before the first unlock, after expiry, and without a passcode.
    public private(set) var userInactiveDeadline: Duration?
    /// Trusted hosts that are connected. None before the first unlock and without a passcode; in S3
    /// and S4 none either, else it would be S4h.
    public private(set) var hosts = 0
    /// The eviction was asked for and has not been reported done.
    private var isEvicting = false
    private var timer: Duration?

    /// The state after boot. A volume without a passcode has all keys from the start.
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
        // While the eviction is under way the gate decides; what is said here is what is about to
        // hold.
        case .locking: return isEvicting ? lockedClasses : .all
        case .beforeFirstUnlock: return .d
        case .locked: return lockedClasses
        case .lockedWithHost: return lockedClasses.union([.a, .b])
        }
    }

    private var lockedClasses: ProtectionClassSet {
        userInactiveDeadline == nil ? [.c, .d] : [.c, .d, .cx]
    }

    /// L8: false exactly while class A and B files can't be opened.
    public var isProtectedDataAvailable: Bool { available.isSuperset(of: [.a, .b]) }

    /// What is left of the grace period; nil outside S3.
    public func graceRemaining(now: Duration) -> Duration? {
        guard case .locking(let end) = state else { return nil }
        return max(.zero, end - now)
    }

    /// Takes an event and says what is to be done about it, in order. Never blocks.
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
            // Nothing can delay a lock that has begun.
            guard !isEvicting, end < earlier else { return }
            state = .locking(until: end)
            endGraceIfDue(now, &effects)
        }
    }

    private mutating func endGraceIfDue(_ now: Duration, _ effects: inout [Effect]) {
        guard case .locking(let end) = state, !isEvicting, now >= end else { return }
        isEvicting = true
        effects.append(.evict([.a, .b], keepOpenFiles: .b))
    }

    private mutating func timerFired(_ now: Duration, _ effects: inout [Effect]) {
        // Whether it came in time or early, it has run out: what is still to come is asked for
        // again.
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
        // After an unlock or a reboot in between there is nothing left to say.
        guard case .locking = state, isEvicting else { return }
        isEvicting = false
        enter(.locked, now)
        effects.append(.announce(.locked))
        expireUserInactive(now, &effects)
    }

    private mutating func hostConnected(_ now: Duration, _ effects: inout [Effect]) {
        switch state {
        case .noPasscode, .beforeFirstUnlock:
            // Whoever asked is refused before this; no host opens what the passcode has not opened
            // since the boot.
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

    /// The lock that the last host has held up until now: without a grace period.
    private mutating func lockIfNobodyHolds(_ now: Duration, _ effects: inout [Effect]) {
        guard state == .lockedWithHost, hosts == 0 else { return }
        enter(.locking(until: now), now)
        effects.append(.announce(.willBecomeUnavailable(timeLeft: .zero)))
        endGraceIfDue(now, &effects)
    }

    private mutating func reboot(_ now: Duration, _ effects: inout [Effect]) {
        endHosts(&effects)
        effects.append(.announce(.reboot))
        // Without a passcode a boot gives every key back at once.
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

    /// Starts or cancels the one timer there is, where that changed.
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
