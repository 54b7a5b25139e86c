import WardFormat

/// A fault that a check found in a volume, and what became of it.
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
        /// A remainder of an unclean end: accepted, and mended.
        case unclean
        /// A stored name that does not open where it is.
        case name
        /// A directory's record.
        case record
        /// A file, directory or link in a directory where it does not belong.
        case place
        /// The class of a file or directory that nothing vouches for.
        case seal
        /// The target of a symbolic link.
        case link
        /// Extended attributes.
        case attribute
        /// A remainder of an interrupted operation.
        case leftover
    }

    public enum Outcome: Equatable, Sendable {
        /// Nothing was changed.
        case found
        /// The fault is repaired.
        case repaired
        /// The fault can't be repaired now, or not by ward at all; the reason.
        case left(String)
    }

    public var kind: Kind
    /// Path inside the volume. A file without a name that opens has its stored name there.
    public var path: String
    public var protectionClass: ProtectionClass?
    /// The bytes of the file that can't be read. Empty where the finding is not about bytes, or
    /// where they are not known.
    public var bytes: [Range<Int>]
    /// The fault, in words.
    public var problem: String
    /// The repair that is possible, or was made.
    public var remedy: String
    public var outcome: Outcome
    /// Where the removed data is kept, below the backing directory.
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

    /// The fault is gone.
    public var isRepaired: Bool { outcome == .repaired }

    /// First and last byte of each range: "0-3803, 7864-11923".
    public var byteText: String {
        let shown = bytes.prefix(CheckFinding.shownRanges).map {
            "\($0.lowerBound)-\($0.upperBound - 1)"
        }
        let more = bytes.count - shown.count
        return shown.joined(separator: ", ") + (more > 0 ? " and \(more) more" : "")
    }

    private static let shownRanges = 20
}

/// The progress of a check.
public struct CheckProgress: Equatable, Sendable {
    public var directories = 0
    public var files = 0
    public var bytes = 0
    public var findings = 0
    public init() {}
}

/// The result of a check.
public struct CheckReport: Equatable, Sendable {
    public var progress = CheckProgress()
    /// The first `mostKept` findings. Each was reported, and `progress` counts all.
    public var findings: [CheckFinding] = []
    static let mostKept = 10_000
    /// The number of repaired findings.
    public var repaired = 0
    /// Files whose content was not read because their class is locked.
    public var unread: [ProtectionClass: Int] = [:]
    /// Places that could not be examined, and why.
    public var unreachable: [String] = []
    /// Names in the backing directory that are not ward's: left alone.
    public var foreign: [String] = []
    /// The check was ended before everything was examined.
    public var isInterrupted = false
    /// Whether unclean ends still excuse findings.
    public var isInDoubt = false
    /// The report that was left in the volume.
    public var reportPath: String?
    public init() {}

    /// Everything was examined.
    public var isComplete: Bool { unread.isEmpty && unreachable.isEmpty && !isInterrupted }
}
