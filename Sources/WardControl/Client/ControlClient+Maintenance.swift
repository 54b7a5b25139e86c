/// Calls that back the volume up and check it.
extension ControlClient {
    /// Begins a backup. Returns when everything written so far is durable. As long as this client
    /// lives, the daemon holds the epoch and delays changes of the keybag. The client can't be used
    /// for other calls.
    public func beginBackup() throws(ControlError) {
        // A slow backing store takes minutes for this.
        try setTimeout(.seconds(600))
        try begin(.backup)
        _ = try readAnswer()
    }

    /// Checks the volume; with `repair`, repairs it. Passes each answer of the daemon to `body`;
    /// the last one is the report.
    public func check(
        repair: Bool, _ body: (JSONValue) -> Void
    ) throws(ControlError) {
        // A page of a large file may take as long as the disk needs.
        try setTimeout(.seconds(600))
        try begin(.check, .object(present: [("repair", repair ? .bool(true) : nil)]))
        while true {
            let answer = try readAnswer()
            body(answer.parameters)
            if !answer.continues { return }
        }
    }
}
