import WardControl
import WardKeys

extension LockStateMachine.Announcement {
    /// Returns the event that tells programs.
    ///
    /// - `eviction` is the last one: its duration since it was due, and the files that it dropped.
    /// - `unlock` is the time since the passcode arrived.
    func event(
        state: String, eviction: (duration: Duration, files: Int)?, unlock: Duration?
    ) -> ControlEvent {
        switch self {
        case .willBecomeUnavailable(let left):
            ControlEvent(kind: .willBecomeUnavailable, state: state, secondsLeft: left.inSeconds)
        case .locked:
            ControlEvent(
                kind: .locked, state: state, seconds: eviction?.duration.inSeconds,
                files: eviction?.files)
        case .didBecomeAvailable:
            ControlEvent(kind: .didBecomeAvailable, state: state, seconds: unlock?.inSeconds)
        case .heldOpen(let hosts):
            ControlEvent(
                kind: .trustedHost, state: state, operation: "hold",
                detail: "locked, and A and B stay open for "
                    + (hosts == 1 ? "a trusted host" : "\(hosts) trusted hosts"))
        case .openedForHost:
            ControlEvent(kind: .didBecomeAvailable, state: state, detail: "for a trusted host")
        case .firstUnlock: ControlEvent(kind: .firstUnlock, state: state)
        case .reboot: ControlEvent(kind: .reboot, state: state)
        case .passcodeChanged: ControlEvent(kind: .passcodeChanged, state: state)
        case .userInactive:
            ControlEvent(
                kind: .didBecomeUnavailable, state: state, protectionClass: "CX",
                detail: "there was no unlock for the volume's period")
        case .lockIgnored:
            ControlEvent(
                kind: .note, state: state, detail: "no passcode is set: a lock changes nothing")
        }
    }
}

extension LockStateMachine.Event {
    /// The reason why the event ends the connections of trusted hosts.
    var reasonForHosts: String {
        switch self {
        case .reboot: "the volume was rebooted"
        case .passcodeRemoved: "the passcode was removed"
        case .hostsRevoked: "no host is trusted any more"
        default: "the volume was locked for everybody"
        }
    }
}
