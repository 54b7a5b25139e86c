/// The rules by which workers serve, as one value: an event in, a decision out (decision 0084).
///
/// Each worker has a value of its own, and so has the watch. The threads around it make the system
/// calls and hold what they share (`DeviceTransport`, `RingTransport`, `SoleWorker`). They report
/// what they saw, with the clock's time, and carry the decisions out. The lock never asks.
struct ServingPolicy {
    private var device: DevicePolicy
    private var ring: RingPolicy
    private var watch: WatchPolicy

    /// `quickNanoseconds`, `freedNanoseconds`: as in `ServingLimits`, unless a test says otherwise.
    init(
        rules: ServingRules = .all, machine: ServingMachine,
        quickNanoseconds: UInt64 = ServingLimits.quickNanoseconds,
        freedNanoseconds: UInt64 = ServingLimits.freedNanoseconds
    ) {
        device = DevicePolicy(
            rules: rules, processors: machine.processors, quickNanoseconds: quickNanoseconds)
        ring = RingPolicy(rules: rules)
        watch = WatchPolicy(
            starvationNanoseconds: machine.starvationNanoseconds,
            freedNanoseconds: freedNanoseconds)
    }

    /// This worker is the sole worker, as far as it knows.
    @inline(__always)
    var isSole: Bool { device.isSole }
    /// A request at the device came and was not answered.
    @inline(__always)
    var isServing: Bool { device.isServing }
    /// A request at the device was answered, and `nextWanted` did not follow yet.
    @inline(__always)
    var isAnswered: Bool { device.isAnswered }
    /// The worker runs on the program's CPU. An answer is reported before it goes out, because the
    /// program runs next.
    @inline(__always)
    var isFollowing: Bool { device.isFollowing }
    /// `ringAnswered` is expected.
    @inline(__always)
    var timesRead: Bool { ring.timesRead }
    /// `ringIsEmpty` is expected.
    @inline(__always)
    var mayStayAwake: Bool { ring.mayStayAwake }
    /// A worker that yielded was found to starve.
    var hasStarved: Bool { watch.hasStarved }

    @inline(__always)
    mutating func decide(_ event: ServingEvent) -> ServingDecision {
        switch event {
        case .requestCame(let request, let now): device.requestCame(request, at: now)
        case .queueSeen(let isAnotherThere, let turn):
            device.queueSeen(isAnotherThere: isAnotherThere, turn: turn)
        case .programSeen(let cpu): device.programSeen(cpu)
        case .bound(let binding): device.bound(binding)
        case .wishNoted: device.wishNoted()
        case .serviceBegins(let now, let waits): device.serviceBegins(at: now, waits: waits)
        case .soleRole(let isGranted): device.soleRole(isGranted: isGranted)
        case .answered(let now): device.answered(at: now)
        case .waitsCounted(let waits): device.waitsCounted(waits)
        case .nextWanted(let isSole): device.nextWanted(isSole: isSole)
        case .deviceLooked(let found): device.deviceLooked(found: found)
        case .polled(let found): device.polled(found: found)
        case .woken(let nanoseconds): device.woken(after: nanoseconds)
        case .willSleep: device.willSleep()
        case .rested: device.rested()
        case .syncAsked: device.syncAsked()

        case .ringBound: ring.ringBound()
        case .ringRequestCame(let readBytes): ring.requestCame(readBytes: readBytes)
        case .cpusChanged(let isDone): ring.cpusChanged(isDone: isDone)
        case .companySeen(let isShared, let mayYield, let yields):
            ring.companySeen(isShared: isShared, mayYield: mayYield, yields: yields)
        case .ringServiceBegins(let hasMoved, let yields):
            ring.serviceBegins(hasMoved: hasMoved, yields: yields)
        case .clockRead(let now): ring.clockRead(at: now)
        case .ringAnswered(let now): ring.answered(at: now)
        case .ringRequestEnded: ring.requestEnded()
        case .ringIsEmpty(let now): ring.isEmpty(at: now)
        case .stoppedYielding: ring.stoppedYielding()

        case .watchBegins(let beat): watch.begins(beat: beat)
        case .watchTick(let beat): watch.tick(beat: beat)
        case .watchSawQueue(let isAnotherThere): watch.queueSeen(isAnotherThere: isAnotherThere)
        case .yieldTick(let owner, let now): watch.yieldTick(owner, at: now)
        case .ownerMeasured(let sample, let now): watch.ownerMeasured(sample, at: now)
        case .workersMeasured(let samples, let now): watch.workersMeasured(samples, at: now)
        }
    }
}

/// The facts about the machine that the rules need.
struct ServingMachine {
    /// The CPUs.
    var processors: Int
    /// The time between two looks for starvation, nanoseconds: longer than a tick, at which the
    /// kernel lets other threads run.
    var starvationNanoseconds: UInt64
}

/// An observation of a worker or of the watch. Times are nanoseconds of the monotonic clock.
enum ServingEvent {
    // MARK: A worker at the device

    case requestCame(DeviceRequest, at: UInt64)
    /// After `lookAtQueue`. `turn`: `SoleWorker.turn`.
    case queueSeen(isAnotherThere: Bool, turn: UInt32)
    /// After `findProgram`. Nil: the program can't be seen, or ward may not run there.
    case programSeen(cpu: UInt32?)
    /// After `bind`.
    case bound(Binding)
    /// After `wishToYield`.
    case wishNoted
    /// After `begin`. `waits`: how often the thread has waited so far, if that was asked for.
    case serviceBegins(at: UInt64, waits: Int)
    /// After `becomeSole`. False: another worker is the sole worker.
    case soleRole(isGranted: Bool)
    case answered(at: UInt64)
    /// After `countWaits`.
    case waitsCounted(Int)
    /// The worker is done with the last request. `isSole`: it is still the sole worker.
    case nextWanted(isSole: Bool)
    /// A look at the device that did not wait.
    case deviceLooked(found: Bool)
    /// After `poll`.
    case polled(found: Bool)
    /// A request woke the worker, which slept at the device for `after`, nanoseconds.
    case woken(after: UInt64)
    case willSleep
    /// Another worker was the sole worker meanwhile.
    case rested
    case syncAsked

    // MARK: A worker of a ring

    /// The worker runs on its queue's CPU only.
    case ringBound
    /// `readBytes`: the size of a READ; 0 for all other requests.
    case ringRequestCame(readBytes: Int)
    /// After `runAnywhere` and `runOnOwnCPU`.
    case cpusChanged(isDone: Bool)
    /// `isShared`: another request of the queue is being served.
    case companySeen(isShared: Bool, mayYield: Bool, yields: Bool)
    /// `hasMoved`: the program's last request came by another queue.
    case ringServiceBegins(hasMoved: Bool, yields: Bool)
    /// After `readClock`.
    case clockRead(at: UInt64)
    case ringAnswered(at: UInt64)
    case ringRequestEnded
    /// No request is there, and the worker is about to sleep.
    case ringIsEmpty(at: UInt64)
    /// The worker became an ordinary thread, because it rests, ends or holds a shared mutex.
    case stoppedYielding

    // MARK: The watch

    /// `beat`: `SoleWorker.beat`, odd while the sole worker serves a request.
    case watchBegins(beat: UInt64)
    case watchTick(beat: UInt64)
    /// After `lookAtQueue`.
    case watchSawQueue(isAnotherThere: Bool)
    case yieldTick(SoleThread, at: UInt64)
    /// After `measureOwner`. The time is that after the measurement.
    case ownerMeasured(ThreadSample, at: UInt64)
    /// The workers of rings that yield.
    case workersMeasured([ThreadSample], at: UInt64)

    /// The result of binding a worker to a CPU.
    enum Binding {
        case done
        /// The worker does not yield any more, or another thread is ending that.
        case notNow
        case impossible
    }
}

/// A request that a worker took from the device.
struct DeviceRequest {
    /// The thread that asks, gettid(2); 0: the kernel itself.
    var program: UInt32
    /// A program waits for the answer.
    var isAwaited = true
    var isSync = false
    /// Other workers could do a part of it.
    var isLarge = false
    var isForget = false
    /// The request was queued before the worker looked.
    var hadWaited = false
    /// This worker is the sole worker.
    var isSole = false
    /// Sole workers may yield (`SoleWorker.mayYield`).
    var mayYield = false
}

/// The watch's view of the sole worker.
struct SoleThread {
    /// The worker wants to yield.
    var wishes: Bool
    /// No worker may yield now: after starvation, or because of a lock.
    var isBarred: Bool
    var yields: Bool
    /// The worker's thread is known.
    var isKnown: Bool
}

/// An instruction to a worker or to the watch. Most decisions are followed by the event that tells
/// the result.
enum ServingDecision: Equatable {
    case goOn

    // MARK: A worker at the device

    /// Look whether another request is queued. Also for the watch.
    case lookAtQueue
    /// Find the CPU of the program that asks.
    case findProgram
    /// Run on this CPU only, which is undone when the worker's yielding ends.
    case bind(cpu: UInt32)
    /// Tell the watch whether to make this worker yield.
    case wishToYield(Bool)
    /// Report the start of service. `readsClock`: with a new time.
    case begin(readsClock: Bool, countsWaits: Bool)
    case serve
    /// Ask for the part of the sole worker.
    case becomeSole
    /// Serve, and tell the watch. `reminds`: first send workers away that still sleep at the
    /// device.
    case serveAsSole(reminds: Bool)
    /// Count the thread's waits until now.
    case countWaits
    /// Tell the watch that the request was answered.
    case markAnswered
    /// Let all workers serve. Also for the watch.
    case endTurn
    case poll(nanoseconds: UInt64)
    case sleep
    /// Sleep for so long, then look for more FORGETs.
    case gather(microseconds: UInt32)
    case syncHere
    case syncElsewhere

    // MARK: A worker of a ring

    case runAnywhere
    case runOnOwnCPU
    case readClock
    case stayAwake(nanoseconds: UInt64)

    // MARK: Yielding

    /// Measure the sole worker's use of the CPUs.
    case measureOwner
    case startYielding
    /// Make the worker an ordinary thread. `barredUntil`: no worker yields before that time; 0: any
    /// may.
    case stopYielding(barredUntil: UInt64)
}
