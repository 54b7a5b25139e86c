/// The version of a volume's format. One version holds for all structures of a volume
/// (docs/format.md §10).
public enum VolumeFormat: UInt16, CaseIterable, Comparable, Sendable {
    /// A file, directory or link authenticates in every directory.
    case version1 = 1
    /// A file, directory or link authenticates only in the directories where it has a name.
    case version2 = 2

    /// The format that a new volume gets.
    public static let ofNewVolumes = VolumeFormat.version2

    public static func < (a: VolumeFormat, b: VolumeFormat) -> Bool { a.rawValue < b.rawValue }
}
