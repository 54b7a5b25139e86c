/// How far an upgrade is.
public struct UpgradeProgress: Equatable, Sendable {
    /// Files, directories, links and other names that were looked at.
    public var done = 0
    /// About how many there are.
    public var total = 0

    public init() {}
}

/// The result of an upgrade.
public struct UpgradeReport: Sendable {
    /// Something that keeps the upgrade from its end: a path, and the reason.
    public struct Left: Equatable, Sendable {
        public var path: String
        public var reason: String
    }

    public var progress = UpgradeProgress()
    /// Files, directories and links that were carried over now.
    public var carriedOver = 0
    /// Files of class B that wait for an unlock.
    public var locked = 0
    /// The first of those that keep the upgrade from its end, and their number.
    public var left: [Left] = []
    public var leftCount = 0
    public var isInterrupted = false
    /// Whether the volume has format 2 alone.
    public var isDone = false

    static let mostKept = 100

    public init() {}
}
