import WardConsole
import WardControl

/// Text for lock states.
enum StateText {
    /// The state in words: "locked (before the first unlock)".
    static func name(_ state: String) -> String {
        switch state {
        case "noPasscode": "open (no passcode is set)"
        case "beforeFirstUnlock": "locked (before the first unlock)"
        case "unlocked": "unlocked"
        case "locking": "locking"
        case "locked": "locked"
        case "lockedWithHost": "locked, and open for a trusted host"
        default: Text.printable(state)
        }
    }

    static func coloured(_ state: String, _ style: Style) -> String {
        switch state {
        case "unlocked", "noPasscode": style.green(name(state))
        case "locking", "lockedWithHost": style.yellow(name(state))
        default: style.red(name(state))
        }
    }

    /// The time until a class closes; nil where none is running.
    static func classNote(_ entry: ClassStatus, _ status: VolumeStatus) -> String? {
        guard entry.available else { return nil }
        if entry.letter == "A" || entry.letter == "B", let left = status.graceRemainingSeconds {
            return "closes in \(Text.duration(seconds: left))"
        }
        // An unlocked device is not inactive.
        if entry.letter == "CX", status.state != "unlocked",
            let left = status.userInactiveRemainingSeconds
        {
            return "closes in \(Text.duration(seconds: left)) without an unlock"
        }
        return nil
    }

    static func isLocked(_ state: String) -> Bool {
        state == "locked" || state == "beforeFirstUnlock"
    }
}
