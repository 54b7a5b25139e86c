import WardControl

/// Lock states in words.
enum StateText {
    /// "locked", "before first unlock", …: the state as a person says it.
    static func name(_ state: String) -> String {
        switch state {
        case "noPasscode": "open (no passcode is set)"
        case "beforeFirstUnlock": "locked (before the first unlock)"
        case "unlocked": "unlocked"
        case "locking": "locking"
        case "locked": "locked"
        default: state
        }
    }

    static func coloured(_ state: String, _ style: Style) -> String {
        switch state {
        case "unlocked", "noPasscode": style.green(name(state))
        case "locking": style.yellow(name(state))
        default: style.red(name(state))
        }
    }

    static func isLocked(_ state: String) -> Bool {
        state == "locked" || state == "beforeFirstUnlock"
    }
}
