/// Calls that read the status, the holders and the events.
extension ControlClient {
    /// Asks for the status (`Status` of the interface).
    public func status() throws(ControlError) -> VolumeStatus {
        let answer = try call(.status)
        guard let json = answer["status"], let status = VolumeStatus(json: json) else {
            throw violation("no status in the answer")
        }
        return status
    }

    /// The processes that have files open: of all classes, or of the class with this letter.
    public func holders(protectionClass: String? = nil) throws(ControlError) -> HolderReport {
        let answer = try call(
            .holders,
            .object(present: [("protectionClass", protectionClass.map { .string($0) })]))
        guard let report = HolderReport(json: answer) else {
            throw violation("no holders in the answer")
        }
        return report
    }

    /// A message that `monitor` passes on.
    public enum Notice: Equatable, Sendable {
        /// The first message, where `status` was set.
        case status(VolumeStatus)
        case event(ControlEvent)
    }

    /// Passes on the last `last` events, then, with `follow`, each new one, until `body` returns
    /// false or the mount ends. The interface describes `signals`, `protectionClass` and `status`.
    /// Without `follow` the connection's time-out limits each wait.
    public func monitor(
        last: Int = 0, follow: Bool = true, signals: Bool = false, protectionClass: String? = nil,
        status: Bool = false, _ body: (Notice) -> Bool
    ) throws(ControlError) {
        if follow { try setTimeout(nil) }
        try begin(
            .monitor,
            .object(
                present: [
                    ("last", .int(Int64(last))), ("follow", follow ? nil : .bool(false)),
                    ("signals", signals ? .bool(true) : nil),
                    ("protectionClass", protectionClass.map { .string($0) }),
                    ("status", status ? .bool(true) : nil),
                ]))
        while true {
            let answer: (parameters: JSONValue, continues: Bool)
            do throws(ControlError) {
                answer = try readAnswer()
            } catch {
                if error.code == .connectionLost, follow { return }
                throw error
            }
            if let json = answer.parameters["event"] {
                guard let event = ControlEvent(json: json) else {
                    throw violation("not an event in the answer")
                }
                if !body(.event(event)) { return }
            } else if let json = answer.parameters["status"] {
                guard let status = VolumeStatus(json: json) else {
                    throw violation("not a status in the answer")
                }
                if !body(.status(status)) { return }
            }
            if !answer.continues { return }
        }
    }
}
