import CWardLinux

/// Where the worker runs that serves alone at the device and gives way (`LoneServing`): on the CPU of the program that asks,
/// decision 0071.
///
/// Request and answer need no wake-up across CPUs there. The worker is still on its way out of the system call that answered
/// when the program goes on, and is let run again when the program waits for the next answer: the request is there when
/// it looks. So a look that finds nothing says that the program was moved, or that it waits for something else.
///
/// Used by that worker's thread.
struct ProgramFollowing {
    /// So many looks in a row that found nothing, and where the program runs is looked up.
    static let patience = 2
    /// It is at the first request and after so many, too: a worker that is awake on another CPU finds every request as well.
    static let requestsBetweenLookUps: UInt32 = 256

    /// This worker is bound to the CPU of the program that asked last.
    private(set) var isOn = false
    private var cpu: Int32 = -1
    private var vainLooks = 0
    private var requests: UInt32 = 0

    /// After a look for the next request.
    @inline(__always)
    mutating func noteLook(found: Bool) { vainLooks = found ? 0 : vainLooks &+ 1 }

    /// Before a request of the thread `program` is served, gettid(2); 0: of nobody who can be seen.
    @inline(__always)
    mutating func follow(_ program: UInt32) {
        let isDue = requests % ProgramFollowing.requestsBetweenLookUps == 0
        requests &+= 1
        if isDue || isOn && vainLooks >= ProgramFollowing.patience { lookUp(program) }
    }

    private mutating func lookUp(_ program: UInt32) {
        vainLooks = 0
        let now = ward_cpu_of_thread(pid_t(bitPattern: program))
        guard now >= 0, now != cpu else { return }
        guard ward_run_on_cpu(UInt32(now)) == 0 else { return stop() }
        cpu = now
        isOn = true
    }

    /// Whether it can be seen where `program` runs.
    static func canFollow(_ program: UInt32) -> Bool {
        ward_cpu_of_thread(pid_t(bitPattern: program)) >= 0
    }

    mutating func end() {
        stop()
        requests = 0
    }

    private mutating func stop() {
        guard isOn else { return }
        _ = ward_run_anywhere()
        isOn = false
        cpu = -1
    }
}
