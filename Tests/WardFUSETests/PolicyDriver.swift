@testable import WardFUSE

/// Plays a worker at the device for a `ServingPolicy`: it reports events and carries the decisions
/// out in a world that the test sets.
struct PolicyDriver {
    var policy: ServingPolicy
    /// All decisions, in order.
    private(set) var decisions: [ServingDecision] = []
    /// The time, nanoseconds.
    var now: UInt64 = 1_000_000_000
    /// How often the thread has waited so far.
    var waits = 0
    /// Another request is queued at the device.
    var isAnotherThere = false
    /// `SoleWorker.turn`.
    var turn: UInt32 = 0
    /// The CPU of the program that asks; nil: it can't be seen.
    var cpu: UInt32? = 3
    /// The result of binding to a CPU.
    var binding = ServingEvent.Binding.done
    /// No other worker is the sole worker.
    var isGranted = true
    /// This worker is the sole worker.
    private(set) var isSole = false

    init(_ rules: ServingRules = .all, processors: Int = 2) {
        policy = ServingPolicy(
            rules: rules,
            machine: ServingMachine(processors: processors, starvationNanoseconds: 5_000_000))
    }

    @discardableResult
    mutating func tell(_ event: ServingEvent) -> ServingDecision {
        let decision = policy.decide(event)
        decisions.append(decision)
        return decision
    }

    /// Reports a request, and carries out what follows until it is served. Returns how that is.
    @discardableResult
    mutating func ask(_ request: DeviceRequest = DeviceRequest(program: 7)) -> ServingDecision {
        var request = request
        request.isSole = isSole
        request.mayYield = true
        var decision = tell(.requestCame(request, at: now))
        while true {
            switch decision {
            case .lookAtQueue:
                decision = tell(.queueSeen(isAnotherThere: isAnotherThere, turn: turn))
            case .findProgram: decision = tell(.programSeen(cpu: cpu))
            case .bind: decision = tell(.bound(binding))
            case .wishToYield: decision = tell(.wishNoted)
            case .begin: decision = tell(.serviceBegins(at: now, waits: waits))
            case .becomeSole:
                isSole = isGranted
                decision = tell(.soleRole(isGranted: isGranted))
            default: return decision
            }
        }
    }

    /// Reports the answer after `nanoseconds`, and that the next request is wanted.
    @discardableResult
    mutating func answer(after nanoseconds: UInt64 = 5_000) -> ServingDecision {
        now += nanoseconds
        if policy.isServing, tell(.answered(at: now)) == .countWaits { tell(.waitsCounted(waits)) }
        let decision = tell(.nextWanted(isSole: isSole))
        if decision == .endTurn { isSole = false }
        return decision
    }

    /// Serves `count` requests of `request`, each in `nanoseconds`.
    mutating func serve(
        _ count: Int, _ request: DeviceRequest = DeviceRequest(program: 7),
        nanoseconds: UInt64 = 5_000
    ) {
        for _ in 0..<count {
            ask(request)
            answer(after: nanoseconds)
        }
    }

    /// The worker became the sole worker.
    mutating func becomeSole() {
        serve(65)
    }

    /// The sole worker wants to yield, and the watch has made it.
    mutating func becomeYielding() {
        becomeSole()
        serve(64)
        turn += 1
    }
}
