import CWardLinux

/// Where the worker runs that serves alone at the device and gives way (`LoneServing`): on the CPU
/// of the program that asks, decision 0071.
///
/// Request and answer need no wake-up across CPUs there. The worker is still on its way out of the
/// system call that answered when the program goes on, and is let run again when the program waits
/// for the next answer: the request is there when it looks. So a look that finds nothing says that
/// the program was moved, or that it waits for something else.
///
/// Used by that worker's thread.
struct ProgramFollowing {
    /// So many looks in a row that found nothing, and where the program runs is looked up.
    static let patience = 2
    /// It is at the first request and after so many, too: a worker that is awake on another CPU
    /// finds every request as well.
    static let requestsBetweenLookUps: UInt32 = 256

    /// The turn of giving way (`LoneServing.turn`) in which this worker was bound to the CPU of the
    /// program that asked last; nil: it was not. When that turn ends, whoever ends it undoes the
    /// binding.
    private var turn: UInt32?
    private var cpu: UInt32?
    private var vainLooks = 0
    private var requests: UInt32 = 0

    var isOn: Bool { turn != nil }

    /// How it went to bind a worker to a CPU.
    enum Binding {
        case done
        /// It does not give way any more, or is just made not to.
        case notNow
        case impossible
    }

    /// After a look for the next request.
    @inline(__always)
    mutating func noteLook(found: Bool) { vainLooks = found ? 0 : vainLooks &+ 1 }

    /// Before a request of the thread `program`, gettid(2), is served in the turn `turn`; 0: the
    /// kernel's own, which changes nothing. False where it can't be followed: then nobody is, any
    /// more.
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

    /// Where `program` runs; nil where that can't be seen, or is no place for ward.
    static func cpu(of program: UInt32) -> UInt32? {
        let cpu = ward_cpu_of_thread(pid_t(bitPattern: program))
        guard cpu >= 0, ward_may_run_on_cpu(UInt32(cpu)) != 0 else { return nil }
        return UInt32(cpu)
    }

    /// Nobody is followed any more.
    mutating func end() { self = ProgramFollowing() }
}
