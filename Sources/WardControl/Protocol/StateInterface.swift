/// The second control socket of a mount, for programs in a sandbox: it tells the lock state and
/// takes no orders.
///
/// It has two methods of `org.ward.Volume`: `Status`, and `Monitor` without past events. Their
/// answers leave out other programs and their files, the volume's directory, passcodes and hosts.
public enum StateInterface {
    /// The methods of `org.ward.Volume` that this socket answers; all others get
    /// `MethodNotImplemented`.
    public static let methods: Set<ControlMethod> = [.status, .monitor]

    /// The path of this socket: beside the control socket.
    public static func socketPath(besides controlSocket: String) -> String {
        controlSocket + ".state"
    }
}

extension VolumeStatus {
    /// The lock state alone. The members that every status has are kept: `uuid` and `volume` are
    /// empty, `pid` is 0.
    public var narrowed: VolumeStatus {
        var told = VolumeStatus(
            uuid: "", volume: "", mountpoint: mount.mountpoint, state: lock.state,
            since: lock.since,
            passcodeSet: lock.passcodeSet, graceSeconds: lock.graceSeconds,
            graceRemainingSeconds: lock.graceRemainingSeconds,
            classes: classes.map {
                ClassStatus(
                    letter: $0.letter, name: $0.name, available: $0.available, openFiles: 0)
            }, pid: 0, version: mount.version, readOnly: mount.readOnly,
            manualClock: mount.manualClock)
        told.protectedDataAvailable = lock.protectedDataAvailable
        told.firstUnlockHappened = lock.firstUnlockHappened
        told.userInactiveRemainingSeconds = lock.userInactiveRemainingSeconds
        return told
    }
}

extension ControlEvent {
    /// The event's part about the lock state, without its number; nil for an event about something
    /// else.
    public var narrowed: ControlEvent? {
        guard let kind = Kind(rawValue: kind) else { return nil }
        switch kind {
        case .willBecomeUnavailable, .locked, .didBecomeAvailable, .firstUnlock, .reboot,
            .didBecomeUnavailable, .passcodeChanged, .unmounting:
            return ControlEvent(
                time: time, kind: kind, state: state, protectionClass: protectionClass,
                secondsLeft: secondsLeft)
        default: return nil
        }
    }
}
