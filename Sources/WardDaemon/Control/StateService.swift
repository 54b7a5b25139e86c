import WardControl

/// Answers the second control socket of a mounted volume: the lock state, for programs in a
/// sandbox.
final class StateService: ControlHandler {
    private let status: StatusHandler

    init(_ status: StatusHandler) { self.status = status }

    func handle(_ method: ControlMethod, _ call: ControlCall) {
        if method == .status {
            status.tell(call, narrowed: true)
        } else {
            status.monitor(call, narrowed: true)
        }
    }
}
