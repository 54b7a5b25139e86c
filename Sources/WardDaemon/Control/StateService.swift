import WardControl

/// Answers the second control socket of a mounted volume: the lock state, for programs in a
/// sandbox.
final class StateService: ControlHandler {
    private let service: ControlService

    init(_ service: ControlService) { self.service = service }

    func handle(_ method: ControlMethod, _ call: ControlCall) {
        if method == .status {
            service.tellStatus(call, narrowed: true)
        } else {
            service.monitor(call, narrowed: true)
        }
    }
}
