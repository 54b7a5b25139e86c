import WardFormat

/// Something that a check found wrong with a volume, and what became of it.
public struct CheckFinding: Equatable, Sendable {
    public enum Kind: String, CaseIterable, Sendable {
        /// The keybag or its copy.
        case keybag
        /// The root's directory record or the state record.
        case root
        /// Pages of a file that do not authenticate, were wiped or cut off.
        case content
        /// A file's header, without which it has neither class nor key.
        case header
        /// What an unclean end can leave: accepted, and mended.
        case unclean
        /// A stored name that does not open where it is.
        case name
        /// A directory's record.
        case record
        /// The target of a symbolic link.
        case link
        /// Extended attributes.
        case attribute
        /// What an interrupted operation left.
        case leftover
    }

    public enum Outcome: Equatable, Sendable {
        /// It is as it was found.
        case found
        /// Put right.
        case repaired
        /// It can't be put right now, or by ward at all: why.
        case left(String)
    }

    public var kind: Kind
    /// Inside the volume; of what has no name that opens, the stored one.
    public var path: String
    public var protectionClass: ProtectionClass?
    /// Which bytes of the file can't be read; empty where it is not about bytes, or where they
    /// can't be told.
    public var bytes: [Range<Int>]
    /// What is wrong.
    public var problem: String
    /// What a repair does, or did.
    public var remedy: String
    public var outcome: Outcome
    /// Where what was taken away is kept, below the backing directory.
    public var quarantined: String?

    public init(
        _ kind: Kind, path: String, protectionClass: ProtectionClass? = nil,
        bytes: [Range<Int>] = [], problem: String, remedy: String, outcome: Outcome = .found,
        quarantined: String? = nil
    ) {
        self.kind = kind
        self.path = path
        self.protectionClass = protectionClass
        self.bytes = bytes
        self.problem = problem
        self.remedy = remedy
        self.outcome = outcome
        self.quarantined = quarantined
    }

    /// Nothing is wrong any more.
    public var isRepaired: Bool { outcome == .repaired }

    /// "0-3803, 7864-11923": first and last byte.
    public var byteText: String {
        let shown = bytes.prefix(CheckFinding.shownRanges).map {
            "\($0.lowerBound)-\($0.upperBound - 1)"
        }
        let more = bytes.count - shown.count
        return shown.joined(separator: ", ") + (more > 0 ? " and \(more) more" : "")
    }

    private static let shownRanges = 20
}

/// How far a check is.
public struct CheckProgress: Equatable, Sendable {
    public var directories = 0
    public var files = 0
    public var bytes = 0
    public var findings = 0
    public init() {}
}

/// What a check came to.
public struct CheckReport: Equatable, Sendable {
    public var progress = CheckProgress()
    /// The first ones, `mostKept` at most; each was told, and `progress` counts them all.
    public var findings: [CheckFinding] = []
    static let mostKept = 10_000
    /// How many were put right.
    public var repaired = 0
    /// Files whose content was not read because their class is locked.
    public var unread: [ProtectionClass: Int] = [:]
    /// What could not be looked at, and why.
    public var unreachable: [String] = []
    /// Names in the backing directory that are not ward's: left alone.
    public var foreign: [String] = []
    /// It was ended before everything was seen.
    public var isInterrupted = false
    /// Whether unclean ends still excuse anything.
    public var isInDoubt = false
    /// The report that was left in the volume.
    public var reportPath: String?
    public init() {}

    /// Everything was seen.
    public var isComplete: Bool { unread.isEmpty && unreachable.isEmpty && !isInterrupted }
}
