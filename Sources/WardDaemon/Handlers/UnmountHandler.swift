import WardControl
import WardSystem

/// `Unmount`, and the ends of a mount that has lost its keys: the queue `ward-end`.
///
/// Concurrency: any thread.
final class UnmountHandler: Sendable {
    private let keeper: LockKeeper
    /// Unmounts. Returns the reason why it can't, or nil.
    private let unmount: @Sendable (_ force: Bool) -> String?
    private let queue = SerialQueue("ward-end", limit: 4, starts: .atOnce)

    init(keeper: LockKeeper, unmount: @escaping @Sendable (_ force: Bool) -> String?) {
        self.keeper = keeper
        self.unmount = unmount
    }

    func begin(_ call: ControlCall) {
        let force = call.parameters["force"]?.boolValue ?? false
        let unmount = unmount
        let isTaken = queue.add {
            if let reason = unmount(force) {
                call.fail(.busy(reason: reason))
            } else {
                call.reply()
            }
        }
        if !isTaken { call.fail(.busy(reason: "the volume is being unmounted")) }
    }

    /// Runs `body` in the queue. False where the queue has ended.
    func add(_ body: @escaping @Sendable () -> Void) -> Bool { queue.add(always: true, body) }

    /// Wipes every key in memory, in any state, and ends the mount.
    func endErased() {
        let unmount = unmount
        let keeper = keeper
        queue.add(always: true) {
            keeper.evictEverything()
            _ = unmount(true)
        }
    }

    /// Ends the queue.
    func stop() { queue.end() }
}
