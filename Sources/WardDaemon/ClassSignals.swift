import WardControl
import WardFormat

/// What followers of one class were told last, and what they are to be told next. Pure.
///
/// The signals of a class come from what can be opened, not from what was asked for: so a reboot,
/// the expiry of CX, a lock that was cancelled and a passcode that was removed are told like any
/// lock and unlock.
struct ClassSignals {
    private enum Phase {
        case available
        /// It can be opened, and the end of that was announced.
        case closing
        case unavailable
    }

    private var phases: [ProtectionClass: Phase] = [:]

    /// The signals that lead from what was told to this. `closing` of `available` goes in
    /// `secondsLeft`. The first time there are none: nobody was told anything.
    mutating func update(
        available: ProtectionClassSet, closing: ProtectionClassSet, secondsLeft: Double?,
        state: String
    ) -> [ControlEvent] {
        var signals: [ControlEvent] = []
        for protectionClass in ProtectionClass.allCases {
            let phase: Phase =
                !available.contains(protectionClass)
                ? .unavailable : closing.contains(protectionClass) ? .closing : .available
            guard let old = phases.updateValue(phase, forKey: protectionClass), old != phase else {
                continue
            }
            if phase != .unavailable, old == .unavailable || phase == .available {
                signals.append(
                    ControlEvent(
                        kind: .didBecomeAvailable, state: state,
                        protectionClass: protectionClass.letter))
            }
            switch phase {
            case .available: break
            case .closing:
                signals.append(
                    ControlEvent(
                        kind: .willBecomeUnavailable, state: state,
                        protectionClass: protectionClass.letter, secondsLeft: secondsLeft))
            case .unavailable:
                signals.append(
                    ControlEvent(
                        kind: .didBecomeUnavailable, state: state,
                        protectionClass: protectionClass.letter))
            }
        }
        return signals
    }
}
