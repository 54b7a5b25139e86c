import CWardLinux

/// Keeps a sole worker that yields (`LoneServing`) on the CPU of the program that asks, decision
/// 0071.
///
/// There, request and answer need no wake-up across CPUs. When the program goes on, the worker is
/// still in the system call that answered. It runs again when the program waits for the next
/// answer, and its first look finds the request. So a look that finds nothing means that the
/// program moved or waits for something else.
///
/// Used by that worker's thread.
struct ProgramFollowing {
    /// After so many vain looks in a row the program's CPU is looked up.
    static let patience = 2
    /// The CPU is also looked up at the first request and after so many. A worker that is awake on
    /// another CPU finds every request, too.
    static let requestsBetweenLookUps: UInt32 = 256

    /// The turn (`LoneServing.turn`) in which this worker was bound to the CPU of the program that
    /// asked last; nil: it was not. The thread that ends the turn undoes the binding.
    private var turn: UInt32?
    private var cpu: UInt32?
    private var vainLooks = 0
    private var requests: UInt32 = 0

    var isOn: Bool { turn != nil }

    /// The result of binding a worker to a CPU.
    enum Binding {
        case done
        /// The worker does not yield any more, or another thread is ending that.
        case notNow
        case impossible
    }

    /// Notes whether a look for the next request found one.
    @inline(__always)
    mutating func noteLook(found: Bool) { vainLooks = found ? 0 : vainLooks &+ 1 }

    /// Follows the thread `program`, gettid(2), before its request is served in the turn `turn`.
    /// The kernel's own requests, from 0, change nothing. False where the program can't be
    /// followed: then the worker follows no program any more.
    @inline(__always)
    mutating func follow(_ program: UInt32, turn: UInt32, bind: (UInt32) -> Binding) -> Bool {
        guard program != 0 else { return true }
        if turn != self.turn { end() }
        let isDue = requests % ProgramFollowing.requestsBetweenLookUps == 0
        requests &+= 1
        guard isDue || isOn && vainLooks >= ProgramFollowing.patience else { return true }
        return lookUp(program, turn, bind)
    }

    private mutating func lookUp(
        _ program: UInt32, _ turn: UInt32, _ bind: (UInt32) -> Binding
    ) -> Bool {
        vainLooks = 0
        guard let now = ProgramFollowing.cpu(of: program) else { return false }
        guard now != cpu else { return true }
        switch bind(now) {
        case .done:
            cpu = now
            self.turn = turn
        case .notNow: end()
        case .impossible: return false
        }
        return true
    }

    /// The CPU of `program`; nil where that can't be seen, or ward may not run there.
    static func cpu(of program: UInt32) -> UInt32? {
        let cpu = ward_cpu_of_thread(pid_t(bitPattern: program))
        guard cpu >= 0, ward_may_run_on_cpu(UInt32(cpu)) != 0 else { return nil }
        return UInt32(cpu)
    }

    /// Stops following.
    mutating func end() { self = ProgramFollowing() }
}
