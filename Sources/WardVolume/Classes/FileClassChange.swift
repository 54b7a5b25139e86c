import WardFormat

/// A change of a file's class, as a value that says what the change has to do (rows I7 and I8).
struct FileClassChange: Equatable {
    /// How the class is written.
    enum Step: Equatable {
        /// The file has the class.
        case none
        /// The file has no content: a header without a key names the class.
        case keylessHeader
        /// The file key is wrapped under the other class key.
        case rewrappedKey
    }

    let old: ProtectionClass
    let wanted: ProtectionClass
    let isEmpty: Bool
    /// The class is durable when the call returns. Otherwise a later sync of the whole backing
    /// store makes it durable.
    let isSynced: Bool

    var step: Step { old == wanted ? .none : isEmpty ? .keylessHeader : .rewrappedKey }

    var isStronger: Bool { wanted.isStronger(than: old) }

    /// Whether a later sync owes the stronger class.
    var leavesSyncDue: Bool { isStronger && !isSynced }

    /// Whether a refusal is told to the file's close(2) and by an event: there is content, which
    /// stays in the weaker class.
    var isRefusalTold: Bool { isStronger && !isEmpty }

    /// Whether the file is synced after the step. An earlier change may have set a class without a
    /// sync (`areOthersDue`), or its sync may have failed (`mayHaveLostPages`). The disk may then
    /// have a class that is weaker than both.
    func needsSync(areOthersDue: Bool, mayHaveLostPages: Bool) -> Bool {
        if step == .none { return mayHaveLostPages || isSynced && areOthersDue }
        return isSynced && (isStronger || areOthersDue)
    }
}
