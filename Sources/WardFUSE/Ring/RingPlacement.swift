import CWardLinux

/// The CPUs of a queue's worker. `RingPolicy` says when it leaves the queue's CPU.
struct RingPlacement {
    private let cpu: UInt32

    /// Moves the calling thread to `cpu`. Nil where it can't have that CPU: then it stays where it
    /// is.
    init?(cpu: UInt16) {
        self.cpu = UInt32(cpu)
        guard ward_run_on_cpu(self.cpu) == 0 else { return nil }
    }

    /// Does what `policy` decided about the CPUs of the calling thread, and tells it the result.
    @inline(__always)
    func perform(_ decision: ServingDecision, _ policy: inout ServingPolicy) {
        switch decision {
        case .runAnywhere: _ = policy.decide(.cpusChanged(isDone: ward_run_anywhere() == 0))
        case .runOnOwnCPU: _ = policy.decide(.cpusChanged(isDone: ward_run_on_cpu(cpu) == 0))
        default: break
        }
    }
}
