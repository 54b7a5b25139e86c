/// The methods for the daemon's own helper, besides those of `org.ward.Volume`. Only a connection
/// that the helper inherited (`ControlServer.adopt`) has them; other clients can neither call nor
/// see them.
public enum HelperInterface {
    public static let name = "org.ward.Helper"

    /// `Watching(triggers: []LockTrigger)`: the events that lock the volume from now on.
    public static let watching = "Watching"

    static let methods: Set<String> = [watching]
}

extension ControlClient {
    /// Tells the daemon which events lock its volume; for the helper that inherited this
    /// connection.
    public func report(_ triggers: [LockTrigger]) throws(ControlError) {
        _ = try call(
            qualified: HelperInterface.name + "." + HelperInterface.watching,
            .object([("triggers", .array(triggers.map(\.json)))]))
    }
}
