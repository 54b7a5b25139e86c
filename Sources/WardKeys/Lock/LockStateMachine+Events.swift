import WardFormat

// The events that the lock state takes, and the effects and announcements that it returns.
extension LockStateMachine {
    public enum Event: Equatable, Sendable {
        /// The passcode slot was opened: all class keys are in the keyring.
        case unlocked
        /// Lock after this grace period (0: at once). A second lock can only shorten it.
        /// `endingHosts` ends the connections of trusted hosts first (sleep, shutdown, unmount);
        /// without it they stay.
        case lock(grace: Duration, endingHosts: Bool = false)
        /// The requested timer is due. Harmless at any other time.
        case timer
        /// The eviction at the grace period's end is done: class A is closed.
        case evicted
        /// Return to the state after boot.
        case reboot
        /// A first passcode was set.
        case passcodeSet
        /// The passcode was removed.
        case passcodeRemoved
        /// The policy changed: CX stays open for this long after an unlock, also after the last
        /// one.
        case userInactivePeriodChanged(Duration)
        /// A trusted host's slot was opened: class A's key and class B's private key are in the
        /// keyring.
        case hostConnected
        /// The connection of a trusted host ended.
        case hostDisconnected
        /// All hosts lost their trust: all of their connections end.
        case hostsRevoked
    }

    /// A message to programs.
    public enum Announcement: Equatable, Sendable {
        /// Files of classes A and B can't be opened any more after `timeLeft`.
        case willBecomeUnavailable(timeLeft: Duration)
        /// The grace period is over and class A is closed.
        case locked
        /// All files can be opened. After boot, `firstUnlock` comes just before the first of these.
        case didBecomeAvailable
        case firstUnlock
        case reboot
        /// Class CX can't be opened until the next unlock.
        case userInactive
        /// A passcode was set, or removed.
        case passcodeChanged
        /// A volume without a passcode was locked: nothing changes.
        case lockIgnored
        /// Locked, but A and B stay open for this many trusted hosts.
        case heldOpen(hosts: Int)
        /// Classes A and B were closed and are open now: for a trusted host, and so for every
        /// program.
        case openedForHost
    }

    public enum Effect: Equatable, Sendable {
        /// Evict these classes. For classes in `keepOpenFiles`, the keys of open files stay until
        /// the last close. The caller reports the end of the grace period's eviction by `.evicted`.
        case evict(ProtectionClassSet, keepOpenFiles: ProtectionClassSet)
        /// Open the gate for these classes; their keys are in the keyring.
        case admit(ProtectionClassSet)
        /// Call `handle(.timer)` at this time; replaces an earlier timer.
        case startTimer(at: Duration)
        case cancelTimer
        /// End the connections of all trusted hosts. The caller does not report these ends by
        /// `.hostDisconnected`.
        case endHosts
        case announce(Announcement)
    }
}
