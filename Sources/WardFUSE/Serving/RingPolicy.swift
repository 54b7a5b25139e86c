/// The rules of a ring's worker: where it runs, when it yields, when it stays awake. A part of
/// `ServingPolicy`, which names the events.
///
/// *Where it runs.* The cost of a small request is its wake-ups. They cost least on the CPU of the
/// program, which sleeps meanwhile. The cost of a large read is reading and deciphering, and the
/// kernel asks for the next one before the program needs it. On the program's CPU all of it would
/// run one after the other, beside idle CPUs. A disk wakes the waiting worker on the CPU that gets
/// the interrupt. The program's CPU sleeps, and would have to be woken first.
///
/// *When it stays awake.* Each CPU has a queue of its own, whose worker runs there. So request and
/// answer need no wake-up across CPUs. If a program is woken while the worker still runs, the
/// scheduler may put it on the CPU that it ran on before (`recent_used_cpu`, kernel/sched/fair.c).
/// It does so where that CPU is idle: a program that once got two CPUs then goes back and forth
/// with each request. So a worker stays awake for a moment after it answered a program from
/// elsewhere, and its CPU does not look idle. The program's next two answers find the program where
/// it is, and there it stays.
struct RingPolicy {
    private let rules: ServingRules
    private var window = ConcurrencyWindow()
    /// The worker was bound to its queue's CPU.
    private var hasOwnCPU = false
    /// Requests since the last large read, or the last that waited; nil on the CPU of the queue.
    private var requestsElsewhere: Int?
    private var isRead = false
    /// When the current request came, and how long a READ took that was just answered.
    private var began: UInt64 = 0
    private var readTook: UInt64 = 0
    private(set) var timesRead = false
    private(set) var mayStayAwake = false

    init(rules: ServingRules) { self.rules = rules }

    // MARK: Where the worker runs

    mutating func ringBound() -> ServingDecision {
        hasOwnCPU = rules.contains(.placeReads)
        return .goOn
    }

    @inline(__always)
    mutating func requestCame(readBytes: Int) -> ServingDecision {
        isRead = readBytes > 0
        guard hasOwnCPU else { return .goOn }
        if readBytes >= Request.largeBytes { return leave() }
        guard let count = requestsElsewhere else { return .goOn }
        requestsElsewhere = count + 1
        return count + 1 >= ServingLimits.requestsElsewhere ? .runOnOwnCPU : .goOn
    }

    private mutating func leave() -> ServingDecision {
        guard requestsElsewhere != nil else { return .runAnywhere }
        requestsElsewhere = 0
        return .goOn
    }

    /// A worker that could not change its CPUs stays where it is, and tries again later.
    mutating func cpusChanged(isDone: Bool) -> ServingDecision {
        let wasElsewhere = requestsElsewhere != nil
        requestsElsewhere = wasElsewhere == isDone ? nil : 0
        return .goOn
    }

    // MARK: Yielding

    @inline(__always)
    mutating func companySeen(isShared: Bool, mayYield: Bool, yields: Bool) -> ServingDecision {
        window.note(isShared: isShared)
        guard mayYield, rules.contains(.yield), window.isSerial != yields else { return .goOn }
        return yields ? .stopYielding(barredUntil: 0) : .startYielding
    }

    mutating func stoppedYielding() -> ServingDecision {
        window = ConcurrencyWindow()
        return .goOn
    }

    // MARK: Service

    @inline(__always)
    mutating func serviceBegins(hasMoved: Bool, yields: Bool) -> ServingDecision {
        timesRead = hasOwnCPU && isRead && window.isSerial
        mayStayAwake = hasMoved && !yields && rules.contains(.stayAwake)
        return timesRead || mayStayAwake ? .readClock : .serve
    }

    mutating func clockRead(at now: UInt64) -> ServingDecision {
        began = now
        return .serve
    }

    mutating func answered(at now: UInt64) -> ServingDecision {
        if timesRead { readTook = now &- began }
        timesRead = false
        return .goOn
    }

    @inline(__always)
    mutating func requestEnded() -> ServingDecision {
        let took = readTook
        readTook = 0
        return took >= ServingLimits.readWaitNanoseconds ? leave() : .goOn
    }

    mutating func isEmpty(at now: UInt64) -> ServingDecision {
        let mayStay = mayStayAwake
        mayStayAwake = false
        guard mayStay, now &- began < ServingLimits.longestServiceNanoseconds else {
            return .sleep
        }
        return .stayAwake(nanoseconds: ServingLimits.awakeNanoseconds)
    }
}
