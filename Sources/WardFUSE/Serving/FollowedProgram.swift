/// Decides when a sole worker that yields looks for the CPU of the program that asks (decision
/// 0071).
///
/// On the program's CPU, request and answer need no wake-up across CPUs. When the program goes on,
/// the worker is still in the system call that answered. It runs again when the program waits for
/// the next answer, and its first look finds the request. So a look that finds nothing means that
/// the program moved or waits for something else.
struct FollowedProgram {
    /// The turn (`SoleWorker.turn`) in which this worker was bound to the CPU of the program that
    /// asked last; nil: it was not. The thread that ends the turn undoes the binding.
    private var turn: UInt32?
    private var cpu: UInt32?
    private var vainLooks = 0
    private var requests: UInt32 = 0

    @inline(__always)
    var isOn: Bool { turn != nil }

    /// Notes whether a look for the next request found one.
    @inline(__always)
    mutating func noteLook(found: Bool) { vainLooks = found ? 0 : vainLooks &+ 1 }

    /// Notes a request of `program`, gettid(2), in the turn `turn`. True: its CPU is to be looked
    /// up. The kernel's own requests, from 0, change nothing.
    @inline(__always)
    mutating func isLookUpDue(_ program: UInt32, turn: UInt32) -> Bool {
        guard program != 0 else { return false }
        if turn != self.turn { end() }
        let isDue = requests % ServingLimits.requestsBetweenLookUps == 0
        requests &+= 1
        guard isDue || isOn && vainLooks >= ServingLimits.vainLooks else { return false }
        vainLooks = 0
        return true
    }

    /// Whether the worker is to be bound to `cpu`, where the program is.
    func isElsewhere(than cpu: UInt32) -> Bool { cpu != self.cpu }

    /// Notes that the worker was bound to `cpu` in the turn `turn`.
    mutating func noteBinding(to cpu: UInt32, turn: UInt32) {
        self.cpu = cpu
        self.turn = turn
    }

    /// Stops following.
    mutating func end() { self = FollowedProgram() }
}
