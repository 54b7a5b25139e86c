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

    /// The version of the keybag, which an upgrade makes anew last.
    public var keybagFormat: VolumeFormat { isUpgrading ? .version1 : format }

    /// The format for which the keybag of an adopted copy vouches (docs/format-keybag.md,
    /// "Adopting"). Nil where this standing is not believed: a host with a state record of the time
    /// of an upgrade would bring that time back.
    ///
    /// `kit`: the format for which the recovery kit vouches. `takesOlder`: the owner says that the
    /// copy is from before the end of the upgrade.
    public func vouched(byKit kit: VolumeFormat, takesOlder: Bool) -> VolumeFormat? {
        takesOlder || (keybagFormat >= kit && !isUpgrading) ? keybagFormat : nil
    }
}
