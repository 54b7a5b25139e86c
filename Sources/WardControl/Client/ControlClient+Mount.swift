/// Calls about the mount: its recovery kits, its manual clock and its end.
extension ControlClient {
    /// Makes the daemon read the list of recovery kits again.
    public func readRecovery() throws(ControlError) { _ = try call(.readRecovery) }

    /// Moves a manual clock. Returns the state after all timers that came due were handled.
    public func advance(seconds: Double) throws(ControlError) -> String {
        try state(call(.advance, .object([("seconds", .double(seconds))])))
    }

    /// Makes a volume with a manual clock run out of space, or gives the space back.
    public func setFull(_ isFull: Bool) throws(ControlError) {
        _ = try call(.setFull, .object([("full", .bool(isFull))]))
    }

    /// Returns when the daemon has agreed; `waitForEnd` returns when it has ended.
    public func unmount(force: Bool = false) throws(ControlError) {
        _ = try call(.unmount, force ? .object([("force", .bool(true))]) : .object([]))
    }

    /// Blocks until the daemon closes the connection: it does so when the mount has ended.
    public func waitForEnd() throws(ControlError) {
        do throws(ControlError) {
            while true { _ = try readMessage() }
        } catch {
            if error.code != .connectionLost { throw error }
        }
    }
}
