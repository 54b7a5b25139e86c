import WardControl
import WardFormat

/// Decides which signals the followers of one class get. Pure.
///
/// Signals come from the classes that can be opened, not from requests. So a reboot, the expiry of
/// CX, a cancelled lock and a removed passcode are signalled as any lock and unlock is.
struct ClassSignals {
    private enum Phase {
        case available
        /// The class is open, and its end was announced.
        case closing
        case unavailable
    }

    private var phases: [ProtectionClass: Phase] = [:]

    /// The signals that lead from the last known state to this one. Classes in both `closing` and
    /// `available` will be closed in `secondsLeft`. The first call returns no signals.
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
