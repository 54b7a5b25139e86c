import WardControl
import WardFormat
import WardSystem
import WardVolume

/// `Holders`: the queue `ward-search`.
///
/// Concurrency: the server's thread; the searches run in the queue, one at a time.
final class HolderHandler: Sendable {
    private let search: HolderSearch
    private let queue = SerialQueue("ward-search", limit: 4, starts: .atOnce)

    init(volume: Volume, deviceMinor: UInt32) {
        search = HolderSearch(volume: volume, deviceMinor: deviceMinor)
    }

    func find(_ call: ControlCall) {
        call.withProtectionClass { wanted in
            let search = search
            if !queue.add({ call.reply(search.find(wanted).json) }) {
                call.fail(.busy(reason: "others look for holders already"))
            }
        }
    }

    /// Ends the queue.
    func stop() { queue.end() }
}

extension ControlCall {
    /// Passes the parameter `protectionClass`, in any spelling, to `body`; nil where it is absent.
    /// Answers the call where the parameter is not a class.
    func withProtectionClass(_ body: (ProtectionClass?) -> Void) {
        guard let value = parameters["protectionClass"], value != .null else {
            return body(nil)
        }
        guard let text = value.stringValue, let known = ProtectionClass(spelling: text) else {
            return failInvalidParameter("protectionClass")
        }
        body(known)
    }
}
