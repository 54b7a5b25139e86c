/// The rules of the watch: when the sole worker's turn ends, and when a worker begins and ceases to
/// yield. A part of `ServingPolicy`, which names the events.
struct WatchPolicy {
    private let freedNanoseconds: UInt64
    private var starvation: Starvation
    private var lastBeat: UInt64 = 0
    /// The looks at the same beat.
    private var looks = 0
    /// The time of the current tick, and of the next look for starvation.
    private var now: UInt64 = 0
    private var nextLook: UInt64 = 0
    private var purpose = Purpose.start
    /// The request (a beat) that the sole worker served for longer than a look, and the worker's
    /// use of the CPUs by then.
    private var held: (request: UInt64, time: UInt64, use: ThreadUse?)?
    /// When the sole worker was last made an ordinary thread within a request.
    private var wasFreed: UInt64 = 0

    /// The use of a measurement.
    private enum Purpose { case start, heldRequest, starvation }

    init(starvationNanoseconds: UInt64, freedNanoseconds: UInt64) {
        starvation = Starvation(intervalNanoseconds: starvationNanoseconds)
        self.freedNanoseconds = freedNanoseconds
    }

    var hasStarved: Bool { starvation.hasFound }

    // MARK: The turn of the sole worker

    mutating func begins(beat: UInt64) -> ServingDecision {
        lastBeat = beat
        looks = 0
        return .goOn
    }

    mutating func tick(beat: UInt64) -> ServingDecision {
        looks = beat == lastBeat ? looks + 1 : 0
        lastBeat = beat
        let isServing = beat & 1 == 1
        let mostLooks = isServing ? ServingLimits.patientLooks : ServingLimits.idleLooks
        if looks >= mostLooks { return .endTurn }
        return isHeld ? .lookAtQueue : .goOn
    }

    func queueSeen(isAnotherThere: Bool) -> ServingDecision { isAnotherThere ? .endTurn : .goOn }

    /// The sole worker has served the same request since the last look.
    private var isHeld: Bool { lastBeat & 1 == 1 && looks > 0 }

    // MARK: Yielding

    mutating func yieldTick(_ owner: SoleThread, at now: UInt64) -> ServingDecision {
        self.now = now
        if !owner.wishes || owner.isBarred { return .stopYielding(barredUntil: 0) }
        guard owner.yields else {
            // A request that takes long may hold a mutex that a lock waits for.
            guard owner.isKnown, !isHeld else { return .goOn }
            return measure(.start)
        }
        return isHeld ? measure(.heldRequest) : lookForStarvation(isKnown: owner.isKnown)
    }

    private mutating func measure(_ purpose: Purpose) -> ServingDecision {
        self.purpose = purpose
        return .measureOwner
    }

    private mutating func lookForStarvation(isKnown: Bool) -> ServingDecision {
        guard now >= nextLook else { return .goOn }
        nextLook = now &+ starvation.intervalNanoseconds
        return isKnown ? measure(.starvation) : .goOn
    }

    mutating func ownerMeasured(_ sample: ThreadSample, at time: UInt64) -> ServingDecision {
        switch purpose {
        case .start:
            // The next look compares with this one.
            _ = starvation.find([sample])
            nextLook = now &+ starvation.intervalNanoseconds
            return .startYielding
        case .heldRequest:
            guard isKeptFromRunning(sample.use, at: time) else {
                return lookForStarvation(isKnown: sample.thread != 0)
            }
            let isStarvation = now &- wasFreed < freedNanoseconds
            wasFreed = now
            return .stopYielding(barredUntil: isStarvation ? pauseEnd() : 0)
        case .starvation:
            guard !starvation.find([sample]).isEmpty else { return .goOn }
            return .stopYielding(barredUntil: pauseEnd())
        }
    }

    /// The sole worker is runnable, but got less than its share of the CPU since the last look at
    /// this request.
    private mutating func isKeptFromRunning(_ use: ThreadUse?, at time: UInt64) -> Bool {
        defer { held = (lastBeat, time, use) }
        guard let before = held, before.request == lastBeat else { return false }
        guard let use, let last = before.use else { return true }
        // An owner that waits for the disk again and again may be about to run.
        let wantedTo = last.isRunnable && use.isRunnable && use.turns &- last.turns <= 1
        let share = (now &- before.time) / ServingLimits.keptFromRunningShare
        return wantedTo && use.nanoseconds &- last.nanoseconds < share
    }

    mutating func workersMeasured(
        _ samples: [ThreadSample], at now: UInt64
    ) -> ServingDecision {
        self.now = now
        guard !starvation.find(samples).isEmpty else { return .goOn }
        return .stopYielding(barredUntil: pauseEnd())
    }

    private mutating func pauseEnd() -> UInt64 { now &+ starvation.pauseNanoseconds(at: now) }
}
