import WardControl
import WardKeys

/// Answers calls that the keybag refused, or could not serve.
///
/// Concurrency: any thread.
final class FailureReporter: Sendable {
    private let hub: EventHub
    private let ending: UnmountHandler

    init(hub: EventHub, ending: UnmountHandler) {
        self.hub = hub
        self.ending = ending
    }

    /// `what` is the verb of the message, as in "can't unlock the volume".
    func answer(_ call: ControlCall, _ what: String, _ error: KeybagError) {
        // The tenth wrong passcode just erased it, or another process did. No secret opens the
        // volume again, so no class stays open.
        if error.code == .erased { ending.endErased() }
        if let known = VolumeError(error.code) { return call.fail(known) }
        hub.emit(ControlEvent(kind: .note, detail: "can't \(what) the volume: \(error)"))
        call.fail(.failed(what: "\(what) \(error.path)", why: error.reason))
    }
}
