import Testing

/// The protection classes by their letters.
package enum FileClass: String, CaseIterable, CustomTestStringConvertible, Sendable {
    case complete
    case completeUnlessOpen
    case completeUntilFirstUserAuthentication
    case none
    case completeWhenUserInactive

    package var letter: String {
        switch self {
        case .complete: "A"
        case .completeUnlessOpen: "B"
        case .completeUntilFirstUserAuthentication: "C"
        case .none: "D"
        case .completeWhenUserInactive: "CX"
        }
    }
    /// Apple's string for the class, the value of `user.ward.class`.
    package var apple: String {
        "NSFileProtection" + rawValue.prefix(1).uppercased() + rawValue.dropFirst()
    }
    package var testDescription: String { letter }
}

/// The lock states of semantics.md, with two states for S4: CX open and CX expired.
package enum LockState: String, CaseIterable, CustomTestStringConvertible, Sendable {
    case noPasscode = "S0"
    case beforeFirstUnlock = "S1"
    case unlocked = "S2"
    case locking = "S3"
    case locked = "S4"
    case lockedInactive = "S4 after CX's period"

    package var testDescription: String { rawValue }

    /// The states that a volume with a passcode can be in, in an order that is quick to walk.
    package static let walk: [LockState] = [
        .unlocked, .locking, .locked, .lockedInactive, .beforeFirstUnlock,
    ]

    /// Whether the secret class key of `fileClass` is in memory, so that an existing file can be
    /// opened.
    package func opens(_ fileClass: FileClass) -> Bool {
        switch (self, fileClass) {
        case (.noPasscode, _), (.unlocked, _), (.locking, _), (_, .none): true
        case (.locked, .completeUntilFirstUserAuthentication): true
        case (.locked, .completeWhenUserInactive): true
        case (.lockedInactive, .completeUntilFirstUserAuthentication): true
        default: false
        }
    }

    /// Whether a new file of `fileClass` can be created (row O3): for B the public key is enough.
    package func creates(_ fileClass: FileClass) -> Bool {
        fileClass == .completeUnlessOpen || opens(fileClass)
    }

    /// Whether a descriptor opened while unlocked still works (rows O4 to O8): class B's keep their
    /// keys over a lock, not over a reboot.
    package func serves(_ fileClass: FileClass) -> Bool {
        opens(fileClass)
            || (fileClass == .completeUnlessOpen && (self == .locked || self == .lockedInactive))
    }
}

extension Outcome {
    /// `expected` if the class allows it now, else EPERM.
    package static func allowed(_ allowed: Bool, _ expected: Outcome = .ok) -> Outcome {
        allowed ? expected : .eperm
    }
}
