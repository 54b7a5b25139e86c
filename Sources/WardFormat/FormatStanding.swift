/// The format of a volume, and whether structures of the format before it may be left.
public struct FormatStanding: Equatable, Sendable {
    /// The format that is written.
    public let format: VolumeFormat
    /// Whether the volume is being upgraded to this format.
    public let isUpgrading: Bool

    /// A volume that has structures of this format alone.
    public init(_ format: VolumeFormat) {
        self.format = format
        isUpgrading = false
    }

    private init(upgradingTo format: VolumeFormat) {
        self.format = format
        isUpgrading = true
    }

    /// A volume between format 1 and format 2.
    public static let upgrading = FormatStanding(upgradingTo: .version2)
}
