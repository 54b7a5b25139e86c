/// The rules of a worker at the device: when it serves alone, follows a program, wants to yield,
/// polls, and syncs by itself. A part of `ServingPolicy`, which names the events.
struct DevicePolicy {
    private let rules: ServingRules
    private let processors: Int
    private let quickNanoseconds: UInt64
    private var score: SoleWorkerScore
    private var programs = RecentPrograms()
    /// The requests since this worker became the sole worker.
    private var window = ConcurrencyWindow()
    private var followed = FollowedProgram()
    private var turn = SoleTurn()
    private var arrival = Arrival()
    private var pollCredit = ServingLimits.mostPollCredit
    private(set) var isSole = false
    private(set) var isAnswered = false
    /// The last request was a FORGET.
    private var hasForgotten = false

    /// The state since this worker became the sole worker.
    private struct SoleTurn {
        var requests: UInt32 = 0
        /// The requests that a program waited for.
        var awaitedRequests: UInt32 = 0
        /// Another request was queued at the device when the previous one came.
        var wasAnotherThere = false
        /// The thread that made the previous request.
        var lastProgram: UInt32 = 0
        var wishesToYield = false
    }

    /// The request that came last, until it is served.
    private struct Arrival {
        var request = DeviceRequest(program: 0)
        var time: UInt64 = 0
        /// `SoleWorker.turn`.
        var turn: UInt32 = 0
        /// The reason to look for the program.
        var isFollowUp = false
        /// The CPU that the worker is being bound to.
        var cpu: UInt32 = 0
    }

    init(rules: ServingRules, processors: Int, quickNanoseconds: UInt64) {
        // With one CPU no program runs beside a worker that polls.
        self.rules = processors > 1 ? rules : rules.intersection(.gatherForgets)
        self.processors = processors
        self.quickNanoseconds = quickNanoseconds
        score = SoleWorkerScore(
            quickNanoseconds: quickNanoseconds, countsWaits: rules.contains(.countWaits))
    }

    @inline(__always)
    var isServing: Bool { score.isServing }
    @inline(__always)
    var isFollowing: Bool { followed.isOn }

    // MARK: A request comes

    @inline(__always)
    mutating func requestCame(_ request: DeviceRequest, at now: UInt64) -> ServingDecision {
        hasForgotten = request.isForget
        guard !rules.isDisjoint(with: [.serveAlone, .poll]) else { return .serve }
        arrival.request = request
        arrival.time = now
        programs.note(request.program, at: now)
        // The watch ended this worker's turn while no request came.
        if isSole, !request.isSole { serveWithOthers() }
        return isSole ? companySeen(request) : begin()
    }

    /// Judges whether the request came beside another, for yielding and for the score.
    private mutating func companySeen(_ request: DeviceRequest) -> ServingDecision {
        // A followed program's request is always queued before the worker looks. So only a second
        // queued request shows that one had to wait.
        if followed.isOn { arrival.request.hadWaited = false }
        guard rules.contains(.yield), request.mayYield else {
            followed.end()
            return begin()
        }
        guard request.isAwaited else {
            turn.wasAnotherThere = false
            return begin()
        }
        let hadCompany = turn.wasAnotherThere
        if followed.isOn { arrival.request.hadWaited = hadCompany }
        return .lookAtQueue
    }

    mutating func queueSeen(isAnotherThere: Bool, turn current: UInt32) -> ServingDecision {
        arrival.turn = current
        let program = arrival.request.program
        let wasSerial = window.isSerial
        // One program may have several requests queued: the score judges that.
        window.note(isShared: turn.wasAnotherThere && program != turn.lastProgram)
        turn.wasAnotherThere = isAnotherThere
        turn.lastProgram = program
        turn.awaitedRequests &+= 1
        let isDue = turn.awaitedRequests % ServingLimits.requestsBetweenLookUps == 0
        guard window.isSerial != wasSerial || window.isSerial && !turn.wishesToYield && isDue
        else { return follow() }
        guard window.isSerial else { return wish(false) }
        arrival.isFollowUp = false
        return .findProgram
    }

    private mutating func wish(_ wishes: Bool) -> ServingDecision {
        if !wishes { followed.end() }
        turn.wishesToYield = wishes
        return .wishToYield(wishes)
    }

    mutating func wishNoted() -> ServingDecision { follow() }

    /// Looks for the program while this worker yields.
    private mutating func follow() -> ServingDecision {
        guard turn.wishesToYield, arrival.turn & 1 == 1, rules.contains(.followProgram) else {
            if followed.isOn { followed.end() }
            return begin()
        }
        guard followed.isLookUpDue(arrival.request.program, turn: arrival.turn) else {
            return begin()
        }
        arrival.isFollowUp = true
        return .findProgram
    }

    mutating func programSeen(_ cpu: UInt32?) -> ServingDecision {
        guard let cpu else { return wish(false) }
        guard arrival.isFollowUp else { return wish(true) }
        guard followed.isElsewhere(than: cpu) else { return begin() }
        arrival.cpu = cpu
        return .bind(cpu: cpu)
    }

    mutating func bound(_ binding: ServingEvent.Binding) -> ServingDecision {
        switch binding {
        case .done: followed.noteBinding(to: arrival.cpu, turn: arrival.turn)
        case .notNow: followed.end()
        case .impossible: return wish(false)
        }
        return begin()
    }

    @inline(__always)
    private mutating func begin() -> ServingDecision {
        // One program computes while the other is served. So a request that waited does not mean
        // that one worker is too few.
        if programs.takesTurns, rules.contains(.takeTurns) { arrival.request.hadWaited = false }
        // The time to follow the program does not count as serving.
        return .begin(readsClock: isSole, countsWaits: score.needsWaits)
    }

    @inline(__always)
    mutating func serviceBegins(at now: UInt64, waits: Int) -> ServingDecision {
        let request = arrival.request
        score.begin(
            now, hadWaited: request.hadWaited, isSync: request.isSync, isLarge: request.isLarge,
            waits: waits)
        if isSole { return serveAsSole() }
        return score.sufficesAlone && rules.contains(.serveAlone) ? .becomeSole : .serve
    }

    mutating func soleRole(isGranted: Bool) -> ServingDecision {
        isSole = isGranted
        programs.startAfresh(at: arrival.time)
        turn = SoleTurn()
        window = ConcurrencyWindow()
        return isGranted ? serveAsSole() : .serve
    }

    @inline(__always)
    private mutating func serveAsSole() -> ServingDecision {
        turn.requests &+= 1
        return .serveAsSole(
            reminds: turn.requests % ServingLimits.requestsBetweenReminders == 0)
    }

    @inline(__always)
    func syncAsked() -> ServingDecision {
        isSole && !programs.isOne && rules.contains(.syncElsewhere) ? .syncElsewhere : .syncHere
    }

    // MARK: A request is answered

    @inline(__always)
    mutating func answered(at now: UInt64) -> ServingDecision {
        isAnswered = true
        return score.end(now) ? .countWaits : .goOn
    }

    mutating func waitsCounted(_ waits: Int) -> ServingDecision {
        score.noteWaits(waits)
        return .goOn
    }

    @inline(__always)
    mutating func nextWanted(isSole isStillSole: Bool) -> ServingDecision {
        guard isAnswered else { return .goOn }
        isAnswered = false
        guard isSole else { return .goOn }
        guard isStillSole else {
            // A request took too long, and the other workers serve again.
            serveWithOthers()
            return .goOn
        }
        guard score.needsOthers else { return .markAnswered }
        isSole = false
        followed.end()
        return .endTurn
    }

    /// Another thread ended this worker's turn as sole worker.
    private mutating func serveWithOthers() {
        isSole = false
        startScore()
        followed.end()
    }

    private mutating func startScore() {
        score = SoleWorkerScore(
            quickNanoseconds: quickNanoseconds, countsWaits: rules.contains(.countWaits))
    }

    // MARK: No request is there

    @inline(__always)
    mutating func deviceLooked(found: Bool) -> ServingDecision {
        if followed.isOn {
            followed.noteLook(found: found)
            return found ? .serve : .sleep
        }
        if found { return .serve }
        return paysToPoll ? .poll(nanoseconds: ServingLimits.pollNanoseconds) : .sleep
    }

    private var paysToPoll: Bool {
        guard rules.contains(.poll), pollCredit > 0, !score.wasSlow else {
            return false
        }
        return programs.count < processors || !rules.contains(.leaveProcessors)
    }

    mutating func polled(found: Bool) -> ServingDecision {
        pollCredit = found ? min(pollCredit &+ 1, ServingLimits.mostPollCredit) : pollCredit &- 1
        return found ? .serve : .sleep
    }

    mutating func woken(after nanoseconds: UInt64) -> ServingDecision {
        // A poll would have caught it.
        if nanoseconds < ServingLimits.pollNanoseconds {
            pollCredit = min(pollCredit &+ 2, ServingLimits.mostPollCredit)
        }
        return .serve
    }

    mutating func willSleep() -> ServingDecision {
        guard hasForgotten, rules.contains(.gatherForgets) else { return .sleep }
        hasForgotten = false
        return .gather(microseconds: ServingLimits.gatheringMicroseconds)
    }

    mutating func rested() -> ServingDecision {
        // The old score says nothing about the time after the rest.
        startScore()
        return .goOn
    }
}
