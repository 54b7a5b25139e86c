import CWardLinux
import Glibc
import WardSystem

/// Requests from `/dev/fuse`: a short non-blocking poll while there is traffic, then sleep.
///
/// A request that finds a polling worker costs no wake-up, and a wake-up is most of the cost of a
/// small request. Only a worker that just served a request polls, for some 50 µs, and only while
/// polling pays. Each vain poll lowers a credit, each request that comes soon enough raises it. So
/// an idle mount uses no CPU time. A worker does not poll while as many programs ask as there are
/// CPUs: it would take one of these. It does not poll after a slow request either: a wake-up costs
/// little beside that.
///
/// A worker that served many requests in a row quickly becomes the sole worker (`SoleWorker`). For
/// each request the kernel would wake one of the other workers that sleep at the device. Where
/// allowed, the sole worker yields to the program that asks and follows it (`FollowedProgram`).
/// Then it need not poll. `ServingPolicy` decides all of this.
///
/// A worker holds the content of the request that it serves and of no other. It holds none while it
/// sleeps or waits for a sync.
final class DeviceTransport: RequestTransport {
    /// A request's header and structure, and whole pages.
    static let bufferBytes = Negotiation.maximumTransferBytes + 4096

    let wipeProgress: WipeProgress
    private let share: DeviceShare
    /// This worker's number.
    private let number: Int
    private let buffer: UnsafeMutableRawPointer
    /// How much of the buffer requests have filled since it was wiped.
    private var dirtyBytes = 0
    private var wipesMet: UInt64 = 0
    private var strangeErrors = 0
    private var policy: ServingPolicy
    /// A request came since this worker last slept.
    private var hasServed = false
    /// The last request waited for a sync.
    private var hasSynced = false
    /// Called before this worker sleeps or syncs, and on demand: wipes the rest of what the worker
    /// served.
    var willSleep: () -> Void = {}

    /// Throws `ENOMEM` where there is no memory for the buffer.
    ///
    /// `isAside`: rings bring the requests that programs wait for, and this worker the rest. It
    /// sleeps before each request, and after a FORGET it waits for more of them.
    init(
        _ share: DeviceShare, number: Int, _ wipeProgress: WipeProgress, isAside: Bool = false
    ) throws(Errno) {
        self.share = share
        policy = share.policy(isAside: isAside)
        self.number = number
        self.wipeProgress = wipeProgress
        buffer = try TransferMemory.map(DeviceTransport.bufferBytes)
    }

    deinit {
        wipe()
        TransferMemory.unmap(buffer, DeviceTransport.bufferBytes)
    }

    func nextRequest() -> (request: Request, channel: DeviceChannel)? {
        if hasSynced {
            hasSynced = false
            wipeProgress.met.store(wipesMet, ordering: .sequentiallyConsistent)
        }
        noteServed()
        while true {
            if share.wipeDemand.load(ordering: .relaxed) != wipesMet { meetWipeDemand() }
            var outcome = Outcome.nothing
            var hadWaited = false
            if !share.sole.isServedByOther(than: number) { outcome = look(&hadWaited) }
            if case .nothing = outcome { outcome = sleep() }
            switch outcome {
            case .request(let request, let descriptor):
                strangeErrors = 0
                hasServed = true
                noteRequest(request, hadWaited)
                let channel = DeviceChannel(
                    descriptor: descriptor, transport: policy.isFollowing ? self : nil,
                    holdsUpOthers: policy.decide(.syncAsked) == .syncElsewhere)
                return (request, channel)
            case .nothing: continue
            case .ended:
                share.sole.workerEnds()
                return nil
            }
        }
    }

    // MARK: What the policy is told

    @inline(__always)
    private func noteServed() {
        if policy.isServing { noteEnd() }
        guard policy.isAnswered else { return }
        switch policy.decide(.nextWanted(isSole: share.sole.isServed(by: number))) {
        case .endTurn: share.sole.end()
        case .markAnswered: share.sole.noteBeat(isServing: false)
        default: break
        }
    }

    /// Called before the answer goes out. The program runs first after that, and its time must not
    /// count as this worker's.
    func noteAnswer() {
        guard policy.isSole, policy.isServing else { return }
        noteEnd()
        // After a slow request another worker may be the sole one by now.
        if share.sole.isServed(by: number) { share.sole.noteBeat(isServing: false) }
    }

    @inline(__always)
    private func noteEnd() {
        if policy.decide(.answered(at: SystemClock.nanoseconds())) == .countWaits {
            _ = policy.decide(.waitsCounted(ward_voluntary_switches()))
        }
    }

    private func noteRequest(_ request: Request, _ hadWaited: Bool) {
        let now = SystemClock.nanoseconds()
        var decision = policy.decide(
            .requestCame(
                DeviceRequest(
                    program: request.header.pid, isAwaited: request.isAwaited,
                    isSync: request.isSync, isLarge: request.isLarge, isForget: request.isForget,
                    hadWaited: hadWaited, isSole: share.sole.isServed(by: number),
                    mayYield: share.sole.mayYield.load(ordering: .relaxed)), at: now))
        while true {
            switch decision {
            case .lookAtQueue:
                decision = policy.decide(
                    .queueSeen(
                        isAnotherThere: isAnotherThere(),
                        turn: share.sole.turn.load(ordering: .relaxed)))
            case .findProgram:
                decision = policy.decide(.programSeen(cpu: Yielding.cpu(of: request.header.pid)))
            case .bind(let cpu): decision = policy.decide(.bound(share.sole.bindOwner(to: cpu)))
            case .wishToYield(let wishes):
                share.sole.wishesToYield.store(wishes, ordering: .relaxed)
                decision = policy.decide(.wishNoted)
            case .begin(let readsClock, let countsWaits):
                decision = policy.decide(
                    .serviceBegins(
                        at: readsClock ? SystemClock.nanoseconds() : now,
                        waits: countsWaits ? ward_voluntary_switches() : 0))
            case .becomeSole:
                decision = policy.decide(.soleRole(isGranted: share.sole.begin(number)))
            case .serveAsSole(let reminds):
                share.sole.noteBeat(isServing: true)
                if reminds { share.sole.sendOthersAway(number) }
                return
            default: return
            }
        }
    }

    /// Whether another request is queued, beside the one that came or is being served.
    private func isAnotherThere() -> Bool {
        var entry = pollfd(fd: share.quickDevice, events: Int16(POLLIN), revents: 0)
        return ward_poll(&entry, 1, 0) > 0
    }

    // MARK: Waiting

    private enum Outcome {
        case request(Request, Int32)
        case nothing
        case ended
    }

    /// Looks at the device without waiting, and for a moment longer where that pays. `hadWaited`:
    /// the request was queued already.
    @inline(__always)
    private func look(_ hadWaited: inout Bool) -> Outcome {
        let outcome = receive(share.quickDevice)
        switch outcome {
        case .request: hadWaited = true
        case .nothing: break
        case .ended: return outcome
        }
        guard case .poll(let nanoseconds) = policy.decide(.deviceLooked(found: hadWaited)) else {
            return outcome
        }
        return poll(nanoseconds)
    }

    @inline(__always)
    private func receive(_ descriptor: Int32) -> Outcome {
        let count = read(descriptor, buffer, DeviceTransport.bufferBytes)
        if count > 0 {
            // While this request waits for anything, the buffer holds only its own content.
            if dirtyBytes > count { explicit_bzero(buffer + count, dirtyBytes - count) }
            dirtyBytes = count
            guard let request = Request(UnsafeRawBufferPointer(start: buffer, count: count)) else {
                return strange()
            }
            return .request(request, descriptor)
        }
        switch ward_errno() {
        // ENOENT: the request was interrupted while it was copied.
        case EAGAIN, EINTR, ENOENT: return .nothing
        case ENODEV, ECONNABORTED, EBADF: return .ended
        default: return strange()
        }
    }

    /// Handles an error that the protocol does not foresee: tries again, at most a thousand times
    /// in a row. A daemon that serves nothing should end.
    private func strange() -> Outcome {
        strangeErrors += 1
        return strangeErrors > 1000 ? .ended : .nothing
    }

    private func poll(_ nanoseconds: UInt64) -> Outcome {
        guard share.pollers.add(1, ordering: .relaxed).newValue == 1 else {
            share.pollers.subtract(1, ordering: .relaxed)
            return .nothing
        }
        defer { share.pollers.subtract(1, ordering: .relaxed) }
        let deadline = SystemClock.nanoseconds() &+ nanoseconds
        repeat {
            for _ in 0..<8 { ward_cpu_relax() }
            let outcome = receive(share.quickDevice)
            if case .nothing = outcome { continue }
            _ = policy.decide(.polled(found: true))
            return outcome
        } while SystemClock.nanoseconds() < deadline
        _ = policy.decide(.polled(found: false))
        return .nothing
    }

    private func sleep() -> Outcome {
        wipe()
        if hasServed {
            hasServed = false
            willSleep()
        }
        wipeProgress.met.store(.max, ordering: .sequentiallyConsistent)
        // A wipe that is demanded meanwhile is done when this worker wakes up.
        defer { wipeProgress.met.store(wipesMet, ordering: .sequentiallyConsistent) }
        if share.sole.isServedByOther(than: number) {
            share.sole.rest(number) { isAnotherThere() }
            _ = policy.decide(.rested)
            return .nothing
        }
        if case .gather(let microseconds) = policy.decide(.willSleep) {
            usleep(microseconds)
            return .nothing
        }
        let start = SystemClock.nanoseconds()
        let outcome =
            share.pollingDevice >= 0
            ? share.sole.whileAtDevice(number) { receive(share.device) } : waitAndReceive()
        if case .request = outcome {
            _ = policy.decide(.woken(after: SystemClock.nanoseconds() &- start))
        }
        return outcome
    }

    /// poll(2) wakes every thread that polls. So one worker polls, and the others wait for the
    /// mutex.
    private func waitAndReceive() -> Outcome {
        share.pollMutex.withLock { _ in
            if share.sole.isServedByOther(than: number) { return }
            share.sole.whileAtDevice(number) {
                var entry = pollfd(fd: share.device, events: Int16(POLLIN), revents: 0)
                _ = ward_poll(&entry, 1, -1)
            }
        }
        return share.sole.isServedByOther(than: number) ? .nothing : receive(share.device)
    }

    // MARK: Wiping

    /// Called within a request that needs nothing in the buffer any more, before it waits for a
    /// disk: a lock need not wait for that.
    func willSync() {
        leaveNothing()
        hasSynced = true
        wipeProgress.met.store(.max, ordering: .sequentiallyConsistent)
    }

    private func meetWipeDemand() {
        wipesMet = share.wipeDemand.load(ordering: .sequentiallyConsistent)
        leaveNothing()
        wipeProgress.met.store(wipesMet, ordering: .sequentiallyConsistent)
    }

    private func leaveNothing() {
        wipe()
        willSleep()
    }

    private func wipe() {
        guard dirtyBytes > 0 else { return }
        explicit_bzero(buffer, dirtyBytes)
        dirtyBytes = 0
    }
}
