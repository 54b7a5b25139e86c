/// The second control socket of a mount, for programs in a sandbox: it tells the lock state and
/// takes no orders.
///
/// It speaks `org.ward.Volume`, with two methods of it: `Status`, and `Monitor` without events of
/// the past. Their answers are narrowed: nothing of other programs and their files, of the volume's
/// directory, of passcodes or hosts.
public enum StateInterface {
    /// Methods of `org.ward.Volume` that it answers; all others are `MethodNotImplemented`.
    public static let methods: Set<String> = ["Status", "Monitor"]

    /// Where it listens: beside the control socket.
    public static func socketPath(besides controlSocket: String) -> String {
        controlSocket + ".state"
    }
}

extension VolumeStatus {
    /// The lock state alone. Members that every status has are there: `uuid` and `volume` empty,
    /// `pid` 0.
    public var narrowed: VolumeStatus {
        var told = VolumeStatus(
            uuid: "", volume: "", mountpoint: mountpoint, state: state, since: since,
            passcodeSet: passcodeSet, graceSeconds: graceSeconds,
            graceRemainingSeconds: graceRemainingSeconds,
            classes: classes.map {
                ClassStatus(
                    letter: $0.letter, name: $0.name, available: $0.available, openFiles: 0)
            }, pid: 0, version: version, readOnly: readOnly, manualClock: manualClock)
        told.protectedDataAvailable = protectedDataAvailable
        told.firstUnlockHappened = firstUnlockHappened
        told.userInactiveRemainingSeconds = userInactiveRemainingSeconds
        return told
    }
}

extension ControlEvent {
    /// The part of it about the lock state, without its number; nil where it is about something
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
