/// The interface of the daemon's own helper, besides the methods of `org.ward.Volume`: only over a
/// connection that it inherited (`ControlServer.adopt`). Nobody else can call it, or sees it.
public enum HelperInterface {
    public static let name = "org.ward.Helper"

    /// `Watching(triggers: []LockTrigger)`: what locks the volume from now on.
    public static let watching = "Watching"

    static let methods: Set<String> = [watching]
}

extension ControlClient {
    /// Tells the daemon what locks its volume; for the helper that inherited this connection.
    public func report(_ triggers: [LockTrigger]) throws(ControlError) {
        _ = try call(
            qualified: HelperInterface.name + "." + HelperInterface.watching,
            .object([("triggers", .array(triggers.map(\.json)))]))
    }
}
