import WardControl
import WardFormat

/// What an audit wants to know of an app's container: from the record that its root carries.
struct AuditedContainer {
    static let attribute = "user.ward.container"
    /// The first directory of every container's path.
    static let top = "/Containers/"

    var id: String
    /// Inside the volume.
    var path: String
    /// What the app's entitlement says now; nil without one.
    var entitlement: ProtectionClass?
    /// The app's background modes (`UIBackgroundModes` of its Info.plist); empty where it runs only in front.
    var backgroundModes: [String]

    /// Nil where the record is none: a plain directory, or damaged, which is `ward container list`'s to say.
    init?(path: String, record: [UInt8]) {
        guard let json = try? JSONParser.parse(record), let id = json["id"]?.stringValue,
            json["version"]?.intValue == 1
        else { return nil }
        self.id = id
        self.path = path
        entitlement = json["entitlement"]?.classValue
        backgroundModes = (json["background"]?.arrayValue ?? []).compactMap(\.stringValue)
    }
}
