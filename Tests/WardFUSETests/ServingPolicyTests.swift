import Testing

@testable import WardFUSE

/// The rules by which workers serve, as a value: events in, decisions out (decision 0084).
@Suite struct ServingPolicyTests {
    // MARK: Each rule on and off

    /// A scenario, and the decision that it comes to only while the rule is on.
    struct Switch: Sendable, CustomTestStringConvertible {
        let rule: ServingRules
        let decision: ServingDecision
        let scenario: @Sendable (inout PolicyDriver) -> Void
        var testDescription: String { rule.words.joined() }
    }

    private static let inTurns: @Sendable (inout PolicyDriver) -> Void = { worker in
        for number in 0..<80 as Range<UInt32> {
            worker.serve(1, DeviceRequest(program: 7 + number % 2, hadWaited: true))
        }
    }

    private static let switches: [Switch] = [
        Switch(rule: .serveAlone, decision: .becomeSole) { $0.serve(65) },
        Switch(rule: .countWaits, decision: .begin(readsClock: false, countsWaits: true)) {
            $0.serve(2, nanoseconds: 150_000)
        },
        Switch(rule: .takeTurns, decision: .becomeSole, scenario: inTurns),
        Switch(rule: .poll, decision: .poll(nanoseconds: 50_000)) {
            $0.serve(1)
            $0.tell(.deviceLooked(found: false))
        },
        Switch(rule: .leaveProcessors, decision: .sleep) {
            $0.serve(1)
            $0.serve(1, DeviceRequest(program: 8))
            $0.tell(.deviceLooked(found: false))
        },
        Switch(rule: .syncElsewhere, decision: .syncElsewhere) {
            $0.becomeSole()
            $0.ask(DeviceRequest(program: 7, isSync: true))
            $0.tell(.syncAsked)
        },
        Switch(rule: .yield, decision: .wishToYield(true)) {
            $0.becomeSole()
            $0.serve(64)
        },
        Switch(rule: .followProgram, decision: .bind(cpu: 3)) {
            $0.becomeYielding()
            $0.serve(1)
        },
        Switch(rule: .placeReads, decision: .runAnywhere) {
            $0.tell(.ringBound)
            $0.tell(.ringRequestCame(readBytes: Request.largeBytes))
        },
        Switch(rule: .yield, decision: .startYielding) { worker in
            for _ in 0..<64 {
                worker.tell(.companySeen(isShared: false, mayYield: true, yields: false))
            }
        },
        Switch(rule: .stayAwake, decision: .stayAwake(nanoseconds: 150_000)) {
            $0.tell(.ringServiceBegins(hasMoved: true, yields: false))
            $0.tell(.clockRead(at: 1_000))
            $0.tell(.ringIsEmpty(at: 6_000))
        },
        Switch(rule: .gatherForgets, decision: .gather(microseconds: 2000)) {
            $0.ask(DeviceRequest(program: 0, isAwaited: false, isForget: true))
            $0.tell(.willSleep)
        },
    ]

    @Test("a rule decides while it is on, and not while it is off", arguments: switches)
    func rules(row: Switch) {
        for isOn in [true, false] {
            var worker = PolicyDriver(isOn ? .all : .all.subtracting(row.rule))
            row.scenario(&worker)
            #expect(worker.decisions.contains(row.decision) == isOn, "on: \(isOn)")
        }
    }

    @Test("each rule has a row above, a bit and a word of its own")
    func names() {
        let bits = ServingRules.names.map(\.rule.rawValue)
        #expect(Set(bits).count == bits.count && bits.allSatisfy { $0.nonzeroBitCount == 1 })
        #expect(Set(ServingRules.all.words).count == bits.count)
        #expect(Set(Self.switches.map(\.rule)) == Set(ServingRules.names.map(\.rule)))
        #expect(ServingRules(words: "yield,poll") == [.yield, .poll])
        #expect(ServingRules(words: "") == [])
        #expect(ServingRules(words: "yield,pigeon") == nil)
    }

    @Test("without rules, and with one CPU, a worker serves beside the others and sleeps")
    func none() {
        for var worker in [PolicyDriver([]), PolicyDriver(.all, processors: 1)] {
            worker.serve(1000)
            worker.tell(.deviceLooked(found: false))
            let others = worker.decisions.filter { ![.serve, .goOn, .sleep].contains($0) }
            #expect(others == [])
        }
    }

    // MARK: Serving alone

    @Test("a worker that another one precedes goes on beside it, and asks again")
    func preceded() {
        var worker = PolicyDriver()
        worker.isGranted = false
        worker.serve(64)
        #expect(worker.ask() == .serve)
        worker.answer()
        worker.isGranted = true
        #expect(worker.ask() == .serveAsSole(reminds: false))
    }

    @Test("the sole worker ends its turn after too many slow requests, and reminds now and then")
    func soleWorker() {
        var worker = PolicyDriver()
        worker.becomeSole()
        #expect(worker.answer() == .goOn)
        let reminders = (2...600).filter { _ in
            defer { worker.answer() }
            return worker.ask() == .serveAsSole(reminds: true)
        }
        #expect(reminders == [256, 512])
        var ends: [ServingDecision] = []
        for _ in 0..<8 where ends.last != .endTurn {
            worker.ask()
            worker.waits += 1
            ends.append(worker.answer(after: 1_000_000))
        }
        #expect(ends == Array(repeating: .markAnswered, count: ends.count - 1) + [.endTurn])
        #expect(ends.count == 7)
    }

    @Test("a worker whose turn the watch ended starts afresh")
    func ended() {
        var worker = PolicyDriver()
        worker.becomeSole()
        worker.ask()
        worker.tell(.answered(at: worker.now))
        #expect(worker.tell(.nextWanted(isSole: false)) == .goOn)
        #expect(!worker.policy.isSole)
        // So does one that finds out at the next request.
        worker = PolicyDriver()
        worker.becomeSole()
        worker.tell(.requestCame(DeviceRequest(program: 7, isSole: false), at: worker.now))
        #expect(!worker.policy.isSole)
    }

    // MARK: Polling

    @Test("vain polls use up a credit; requests in time, and soon after a poll, bring it back")
    func pollCredit() {
        var worker = PolicyDriver()
        worker.serve(1)
        var polls = 0
        while worker.tell(.deviceLooked(found: false)) == .poll(nanoseconds: 50_000) {
            polls += 1
            #expect(worker.tell(.polled(found: false)) == .sleep)
        }
        #expect(polls == ServingLimits.mostPollCredit)
        worker.tell(.woken(after: ServingLimits.pollNanoseconds))
        #expect(worker.tell(.deviceLooked(found: false)) == .sleep)
        worker.tell(.woken(after: ServingLimits.pollNanoseconds - 1))
        #expect(worker.tell(.deviceLooked(found: false)) == .poll(nanoseconds: 50_000))
        #expect(worker.tell(.polled(found: true)) == .serve)
        #expect(worker.tell(.deviceLooked(found: true)) == .serve)
    }

    @Test("no poll follows a slow request")
    func slowRequest() {
        var worker = PolicyDriver()
        worker.serve(1, nanoseconds: 40_000)
        #expect(worker.tell(.deviceLooked(found: false)) == .sleep)
        worker.serve(1, nanoseconds: 39_000)
        #expect(worker.tell(.deviceLooked(found: false)) == .poll(nanoseconds: 50_000))
    }

    // MARK: Syncs

    @Test("the sole worker syncs itself where one program has asked for a while")
    func syncs() {
        var worker = PolicyDriver()
        #expect(worker.tell(.syncAsked) == .syncHere)
        worker.becomeSole()
        #expect(worker.tell(.syncAsked) == .syncElsewhere)
        worker.now += ServingLimits.oneProgramNanoseconds
        worker.ask()
        #expect(worker.tell(.syncAsked) == .syncHere)
        worker.answer()
        worker.ask(DeviceRequest(program: 8))
        #expect(worker.tell(.syncAsked) == .syncElsewhere)
    }

    // MARK: Yielding and following

    @Test("the sole worker ceases to wish when the requests of several programs come together")
    func wishes() {
        var worker = PolicyDriver()
        worker.becomeSole()
        worker.isAnotherThere = true
        worker.serve(64)
        #expect(worker.decisions.contains(.wishToYield(true)), "one program has several requests")
        for program in 8..<20 as Range<UInt32> { worker.ask(DeviceRequest(program: program)) }
        #expect(worker.decisions.contains(.wishToYield(false)))
    }

    @Test("without a visible program, or a CPU that it may have, the worker does not wish to yield")
    func noProgram() {
        var worker = PolicyDriver()
        worker.cpu = nil
        worker.becomeYielding()
        #expect(!worker.decisions.contains(.wishToYield(true)))
        #expect(worker.decisions.contains(.wishToYield(false)))
        worker = PolicyDriver()
        worker.becomeYielding()
        worker.binding = .impossible
        worker.ask()
        #expect(worker.decisions.contains(.wishToYield(false)) && !worker.policy.isFollowing)
    }

    @Test(
        "the program's CPU is looked up after vain looks, in a new turn and after many requests; a worker that follows does not poll"
    )
    func follows() {
        func lookUps(_ worker: inout PolicyDriver, _ count: Int = 1) -> Int {
            let before = worker.decisions.count
            worker.serve(count)
            return worker.decisions[before...].count { $0 == .findProgram }
        }
        var worker = PolicyDriver()
        worker.becomeYielding()
        #expect(lookUps(&worker) == 1 && worker.policy.isFollowing)
        #expect(lookUps(&worker) == 0)
        #expect(worker.tell(.deviceLooked(found: false)) == .sleep)
        #expect(lookUps(&worker) == 0, "a single vain look may be chance")
        worker.tell(.deviceLooked(found: false))
        #expect(lookUps(&worker) == 1)
        #expect(lookUps(&worker, Int(ServingLimits.requestsBetweenLookUps)) == 1)
        worker.turn += 2
        #expect(lookUps(&worker) == 1)
        worker.turn += 1
        #expect(lookUps(&worker) == 0 && !worker.policy.isFollowing)
    }

    // MARK: The watch

    /// The owner of the part, and what the watch sees of it.
    private func seen(
        wishes: Bool = true, isBarred: Bool = false, yields: Bool = true, isKnown: Bool = true
    ) -> SoleThread {
        SoleThread(wishes: wishes, isBarred: isBarred, yields: yields, isKnown: isKnown)
    }

    @Test("the watch ends a turn that is idle, and one with a request that others wait behind")
    func turnEnds() {
        var watch = PolicyDriver()
        watch.tell(.watchBegins(beat: 4))
        let idle = (0..<ServingLimits.idleLooks).map { _ in watch.tell(.watchTick(beat: 4)) }
        #expect(idle == Array(repeating: .goOn, count: idle.count - 1) + [.endTurn])
        watch.tell(.watchBegins(beat: 4))
        #expect(watch.tell(.watchTick(beat: 5)) == .goOn)
        #expect(watch.tell(.watchTick(beat: 5)) == .lookAtQueue)
        #expect(watch.tell(.watchSawQueue(isAnotherThere: false)) == .goOn)
        #expect(watch.tell(.watchTick(beat: 5)) == .lookAtQueue)
        #expect(watch.tell(.watchSawQueue(isAnotherThere: true)) == .endTurn)
        watch.tell(.watchBegins(beat: 5))
        let patient = (1..<ServingLimits.patientLooks).map { _ in
            watch.tell(.watchTick(beat: 5))
        }
        #expect(patient.allSatisfy { $0 == .lookAtQueue })
        #expect(watch.tell(.watchTick(beat: 5)) == .endTurn)
    }

    @Test("the watch makes a worker yield that wishes it, between requests and unless it is barred")
    func startsAndStops() {
        let rows: [(SoleThread, isHeld: Bool, ServingDecision)] = [
            (seen(yields: false), false, .measureOwner),
            (seen(yields: false), true, .goOn),
            (seen(yields: false, isKnown: false), false, .goOn),
            (seen(wishes: false, yields: false), false, .stopYielding(barredUntil: 0)),
            (seen(wishes: false), false, .stopYielding(barredUntil: 0)),
            (seen(isBarred: true), true, .stopYielding(barredUntil: 0)),
            (seen(), false, .measureOwner),
            (seen(), true, .measureOwner),
            (seen(isKnown: false), false, .goOn),
        ]
        for (owner, isHeld, decision) in rows {
            var watch = PolicyDriver()
            watch.tell(.watchBegins(beat: 1))
            watch.tell(.watchTick(beat: isHeld ? 1 : 2))
            #expect(watch.tell(.yieldTick(owner, at: watch.now)) == decision, "\(owner), \(isHeld)")
        }
        var watch = PolicyDriver()
        watch.tell(.yieldTick(seen(yields: false), at: watch.now))
        let sample = ThreadSample(thread: 9, use: nil)
        #expect(watch.tell(.ownerMeasured(sample, at: watch.now)) == .startYielding)
    }

    @Test("a worker that is kept from running within a request is freed; twice soon is starvation")
    func freed() {
        var watch = PolicyDriver()
        func look(isRunnable: Bool, ran: UInt64) -> ServingDecision {
            watch.now += 1_000_000
            watch.tell(.watchTick(beat: 1))
            watch.tell(.yieldTick(seen(), at: watch.now))
            let use = ThreadUse(isRunnable: isRunnable, nanoseconds: ran, turns: 1)
            return watch.tell(.ownerMeasured(ThreadSample(thread: 9, use: use), at: watch.now))
        }
        watch.tell(.watchBegins(beat: 1))
        // The first look at a request only measures, and then looks for starvation.
        #expect(look(isRunnable: true, ran: 0) == .measureOwner)
        #expect(look(isRunnable: true, ran: 125_000) == .goOn, "it got its share")
        #expect(look(isRunnable: false, ran: 125_000) == .goOn, "it sleeps")
        #expect(look(isRunnable: true, ran: 125_000) == .goOn)
        #expect(look(isRunnable: true, ran: 249_999) == .stopYielding(barredUntil: 0))
        #expect(!watch.policy.hasStarved)
        let again = look(isRunnable: true, ran: 250_000)
        #expect(
            again
                == .stopYielding(barredUntil: watch.now + ServingLimits.firstPauseNanoseconds))
        #expect(watch.policy.hasStarved)
    }

    @Test("a starved worker of a ring keeps all from yielding, for longer each time")
    func ringStarves() {
        var watch = PolicyDriver()
        let use = ThreadUse(isRunnable: true, nanoseconds: 10, turns: 1)
        let samples = [ThreadSample(thread: 9, use: use)]
        #expect(watch.tell(.workersMeasured(samples, at: watch.now)) == .goOn)
        for factor in [1, 2, 4] as [UInt64] {
            watch.now += 5_000_000
            let end = watch.now + factor * ServingLimits.firstPauseNanoseconds
            #expect(
                watch.tell(.workersMeasured(samples, at: watch.now))
                    == .stopYielding(barredUntil: end))
            watch.now = end
        }
    }

    // MARK: Rings

    @Test(
        "large reads run anywhere, others on the queue's CPU again after some; a failure is tried again"
    )
    func placement() {
        let large = ServingEvent.ringRequestCame(readBytes: Request.largeBytes)
        let small = ServingEvent.ringRequestCame(readBytes: 4096)
        let rows: [(ServingEvent, ServingDecision)] = [
            (large, .goOn), (.ringBound, .goOn), (small, .goOn), (large, .runAnywhere),
            (.cpusChanged(isDone: false), .goOn), (small, .goOn), (large, .runAnywhere),
            (.cpusChanged(isDone: true), .goOn), (large, .goOn), (small, .goOn), (small, .goOn),
            (small, .goOn), (small, .runOnOwnCPU), (.cpusChanged(isDone: false), .goOn),
            (small, .goOn), (small, .goOn), (small, .goOn), (small, .runOnOwnCPU),
            (.cpusChanged(isDone: true), .goOn), (small, .goOn),
        ]
        var worker = PolicyDriver()
        for (number, row) in rows.enumerated() {
            #expect(worker.tell(row.0) == row.1, "row \(number)")
        }
    }

    @Test(
        "a ring's read is timed while requests come one after the other; a slow one moves its worker"
    )
    func timedReads() {
        for (took, decision) in [(39_999, .goOn), (40_000, .runAnywhere)]
            as [(UInt64, ServingDecision)]
        {
            var worker = PolicyDriver()
            worker.tell(.ringBound)
            func begin() -> ServingDecision {
                worker.tell(.ringRequestCame(readBytes: 4096))
                worker.tell(.companySeen(isShared: false, mayYield: false, yields: false))
                return worker.tell(.ringServiceBegins(hasMoved: false, yields: false))
            }
            for _ in 1..<64 { #expect(begin() == .serve) }
            #expect(begin() == .readClock && worker.policy.timesRead)
            worker.tell(.clockRead(at: 1000))
            worker.tell(.ringAnswered(at: 1000 + took))
            #expect(worker.tell(.ringRequestEnded) == decision)
        }
    }

    @Test("a ring's worker stays awake once, after a quick answer to a program from another CPU")
    func staysAwake() {
        let rows: [(hasMoved: Bool, yields: Bool, took: UInt64, staysAwake: Bool)] = [
            (true, false, 49_999, true), (true, false, 50_000, false), (true, true, 5_000, false),
            (false, false, 5_000, false),
        ]
        for row in rows {
            var worker = PolicyDriver()
            let begun = worker.tell(.ringServiceBegins(hasMoved: row.hasMoved, yields: row.yields))
            if begun == .readClock { worker.tell(.clockRead(at: 1000)) }
            let empty = worker.tell(.ringIsEmpty(at: 1000 + row.took))
            #expect(empty == (row.staysAwake ? .stayAwake(nanoseconds: 150_000) : .sleep))
            #expect(worker.tell(.ringIsEmpty(at: 1000)) == .sleep)
        }
    }
}
