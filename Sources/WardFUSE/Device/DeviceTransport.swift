import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// The state that the workers of one connection share.
final class DeviceShare: Sendable {
    /// For blocking reads: the kernel wakes one sleeping worker for each request.
    let device: Int32
    /// For non-blocking reads: a clone of `device`. -1 where this user may not open `/dev/fuse` to
    /// make one. Then `device` itself is non-blocking, and one worker at a time polls it for all.
    let spinningDevice: Int32
    /// The number of workers that spin: a second one only takes time from the program that waits.
    let spinners = Atomic<Int>(0)
    /// Goes up with each demand to wipe request buffers.
    let wipeDemand = Atomic<UInt64>(0)
    let pollMutex = Mutex<Void>(())
    let alone: LoneServing
    /// The pace that every worker starts with.
    let pace: ServingPace
    /// The CPUs of this machine.
    let cpus: Int
    var maySpin: Bool { cpus > 1 }

    init(
        device: Int32, spinningDevice: Int32, alone: LoneServing = LoneServing(),
        pace: ServingPace = ServingPace()
    ) {
        self.alone = alone
        self.pace = pace
        self.device = device
        self.spinningDevice = spinningDevice
        cpus = sysconf(Int32(_SC_NPROCESSORS_ONLN))
    }

    deinit {
        Syscall.close(device)
        if spinningDevice >= 0 { Syscall.close(spinningDevice) }
    }
}

/// Requests from `/dev/fuse`: a short non-blocking spin while there is traffic, then sleep.
///
/// A request that finds a spinning worker costs no wake-up, and a wake-up is most of the cost of a
/// small request. Only a worker that just served a request spins, for some 50 µs, and only while
/// spinning pays. Each vain spin lowers `credit`, each request that comes soon enough raises it. So
/// an idle mount uses no CPU time. A worker does not spin while as many programs ask as there are
/// CPUs: it would take one of these. It does not spin after a slow request either: a wake-up costs
/// little beside that.
///
/// A worker that served many requests in a row quickly becomes the sole worker (`LoneServing`). For
/// each request the kernel would wake one of the other workers that sleep at the device. Where
/// allowed, the sole worker yields to the program that asks and follows it (`ProgramFollowing`).
/// Then it need not spin.
///
/// A worker holds the content of the request that it serves and of no other. It holds none while it
/// sleeps or waits for a sync.
final class DeviceTransport: RequestTransport {
    private static let spinNanoseconds: UInt64 = 50_000
    private static let highestCredit = 16
    /// How long a worker waits after a FORGET for more of them. A FORGET after an unlink frees a
    /// node, and no program waits for that.
    private static let gatheringMicroseconds: UInt32 = 2000
    /// After so many requests the sole worker again interrupts the workers that still sleep at the
    /// device.
    private static let requestsBetweenReminders: UInt32 = 256
    /// A request's header and structure, and whole pages.
    static let bufferBytes = Negotiation.maximumTransferBytes + 4096

    let wipeProgress: WipeProgress
    private let share: DeviceShare
    /// This worker's number.
    private let number: Int
    private let maySpin: Bool
    private let gathersForgets: Bool
    private let buffer: UnsafeMutableRawPointer
    /// How much of the buffer requests have filled since it was wiped.
    private var dirtyBytes = 0
    private var wipesMet: UInt64 = 0
    private var credit = DeviceTransport.highestCredit
    private var strangeErrors = 0
    private var pace: ServingPace
    private var isAlone = false
    private var requestsAlone: UInt32 = 0
    /// The requests among `requestsAlone` that a program waited for.
    private var requestsAwaited: UInt32 = 0
    /// The mix of requests since this worker became the sole worker.
    private var mix = RequestMix()
    /// Another request was queued at the device when the previous one came.
    private var wasAnotherThere = false
    /// The thread that made the previous request, gettid(2).
    private var lastProgram: UInt32 = 0
    private var following = ProgramFollowing()
    private var programs = RecentPrograms()
    /// The last request was answered, and `pace` knows it.
    private var wasAnswered = false
    /// A request came since this worker last slept.
    private var hasServed = false
    /// The last request was a FORGET.
    private var hasForgotten = false
    /// The last request waited for a sync.
    private var hasSynced = false
    /// Called before this worker sleeps or syncs, and on demand: wipes the rest of what the worker
    /// served.
    var willSleep: () -> Void = {}

    /// Throws `ENOMEM` where there is no memory for the buffer.
    ///
    /// `maySpin`: small requests are expected; without it the worker sleeps before each request.
    /// `gathersForgets`: no program waits for the requests that come here. So after a FORGET the
    /// worker waits for more of them, and is not woken for each.
    init(
        _ share: DeviceShare, number: Int, _ wipeProgress: WipeProgress, maySpin: Bool = true,
        gathersForgets: Bool = false
    ) throws(Errno) {
        self.share = share
        pace = share.pace
        self.maySpin = maySpin && share.maySpin
        self.gathersForgets = gathersForgets
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
        if maySpin { noteServed() }
        while true {
            if share.wipeDemand.load(ordering: .relaxed) != wipesMet { meetWipeDemand() }
            var outcome = Outcome.nothing
            var hadWaited = false
            if !share.alone.isServedByOther(than: number) {
                let quick = share.spinningDevice >= 0 ? share.spinningDevice : share.device
                outcome = receive(quick)
                if case .request = outcome { hadWaited = true }
                if following.isOn {
                    following.noteLook(found: hadWaited)
                } else if case .nothing = outcome, paysToSpin {
                    outcome = spin(quick)
                }
            }
            if case .nothing = outcome { outcome = sleep() }
            switch outcome {
            case .request(let request, let descriptor):
                strangeErrors = 0
                hasServed = true
                hasForgotten = request.isForget
                if maySpin { noteRequest(request, hadWaited) }
                return (
                    request,
                    DeviceChannel(
                        descriptor: descriptor, transport: following.isOn ? self : nil,
                        holdsUpOthers: isAlone && !programs.isOne)
                )
            case .nothing: continue
            case .ended:
                share.alone.workerEnds()
                return nil
            }
        }
    }

    // MARK: Serving alone

    private func noteServed() {
        guard pace.isServing || wasAnswered else { return }
        if pace.isServing { pace.end(SystemClock.nanoseconds()) }
        wasAnswered = false
        guard isAlone else { return }
        if !share.alone.isServed(by: number) {
            // A request took too long, and the other workers serve again.
            serveWithOthers()
        } else if pace.needsOthers {
            isAlone = false
            following.end()
            share.alone.end()
        } else {
            share.alone.noteBeat(isServing: false)
        }
    }

    /// Another thread ended this worker's turn as sole worker.
    private func serveWithOthers() {
        isAlone = false
        pace = share.pace
        following.end()
    }

    /// Called before the answer goes out. The program runs first after that, and its time must not
    /// count as this worker's.
    func noteAnswer() {
        guard isAlone, pace.isServing else { return }
        pace.end(SystemClock.nanoseconds())
        wasAnswered = true
        // After a slow request another worker may be the sole one by now.
        if share.alone.isServed(by: number) { share.alone.noteBeat(isServing: false) }
    }

    private func noteRequest(_ request: Request, _ hadWaited: Bool) {
        let header = request.header
        var hadWaited = hadWaited
        let now = SystemClock.nanoseconds()
        programs.note(header.pid, at: now)
        // The watch ended this worker's turn while no request came.
        if isAlone, !share.alone.isServed(by: number) { serveWithOthers() }
        if isAlone {
            // A followed program's request is always queued before the worker looks. So only a
            // second queued request shows that one had to wait.
            let wasFollowing = following.isOn
            let hadCompany = noteCompany(header)
            if wasFollowing { hadWaited = hadCompany }
        }
        // Two programs take turns: one computes while the other is served. So a request that waited
        // does not mean that one worker is too few.
        if programs.takesTurns { hadWaited = false }
        // The time to follow the program does not count as serving.
        let start = isAlone ? SystemClock.nanoseconds() : now
        pace.begin(
            start, hadWaited: hadWaited, isSync: request.isSync, isLarge: request.isLarge)
        if !isAlone, pace.sufficesAlone {
            isAlone = share.alone.begin(number)
            programs.startAfresh(at: now)
            requestsAlone = 0
            requestsAwaited = 0
            mix = RequestMix()
            wasAnotherThere = false
        }
        guard isAlone else { return }
        share.alone.noteBeat(isServing: true)
        requestsAlone &+= 1
        if requestsAlone % DeviceTransport.requestsBetweenReminders == 0 {
            share.alone.sendOthersAway(number)
        }
    }

    /// Follows the program while requests come one after the other. Returns whether this request
    /// was queued already when the previous one came.
    private func noteCompany(_ header: fuse_in_header) -> Bool {
        guard share.alone.mayGiveWay.load(ordering: .relaxed) else {
            following.end()
            return false
        }
        let hadCompany = wasAnotherThere
        switch fuse_opcode(rawValue: header.opcode) {
        case FUSE_RELEASE, FUSE_RELEASEDIR, FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_INTERRUPT:
            // No program waits for these.
            wasAnotherThere = false
            return false
        default: break
        }
        let wasSerial = mix.isSerial
        // One program may have several requests queued: `pace` judges that.
        mix.note(isShared: hadCompany && header.pid != lastProgram)
        wasAnotherThere = isAnotherThere()
        lastProgram = header.pid
        requestsAwaited &+= 1
        let isDue = requestsAwaited % DeviceTransport.requestsBetweenReminders == 0
        var wants = share.alone.wantsToGiveWay.load(ordering: .relaxed)
        if mix.isSerial != wasSerial || mix.isSerial && !wants && isDue {
            wants = mix.isSerial && ProgramFollowing.cpu(of: header.pid) != nil
            wantToGiveWay(wants)
        }
        let turn = share.alone.turn.load(ordering: .relaxed)
        if wants, turn & 1 == 1 {
            let canFollow = following.follow(header.pid, turn: turn) {
                share.alone.bindOwner(to: $0)
            }
            if !canFollow { wantToGiveWay(false) }
        } else if following.isOn {
            following.end()
        }
        return hadCompany
    }

    private func wantToGiveWay(_ wants: Bool) {
        if !wants { following.end() }
        share.alone.wantsToGiveWay.store(wants, ordering: .relaxed)
    }

    /// Whether another request is queued, beside the one that came or is being served.
    private func isAnotherThere() -> Bool {
        let descriptor = share.spinningDevice >= 0 ? share.spinningDevice : share.device
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return ward_poll(&entry, 1, 0) > 0
    }

    // MARK: Waiting

    private enum Outcome {
        case request(Request, Int32)
        case nothing
        case ended
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

    private var paysToSpin: Bool {
        maySpin && credit > 0 && !pace.wasSlow && programs.count < share.cpus
    }

    private func spin(_ descriptor: Int32) -> Outcome {
        guard share.spinners.add(1, ordering: .relaxed).newValue == 1 else {
            share.spinners.subtract(1, ordering: .relaxed)
            return .nothing
        }
        defer { share.spinners.subtract(1, ordering: .relaxed) }
        let deadline = SystemClock.nanoseconds() &+ DeviceTransport.spinNanoseconds
        repeat {
            for _ in 0..<8 { ward_cpu_relax() }
            let outcome = receive(descriptor)
            if case .nothing = outcome { continue }
            credit = min(credit &+ 1, DeviceTransport.highestCredit)
            return outcome
        } while SystemClock.nanoseconds() < deadline
        credit = credit &- 1
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
        if share.alone.isServedByOther(than: number) {
            share.alone.rest(number) { isAnotherThere() }
            // The old pace says nothing about the time after the rest.
            pace = share.pace
            return .nothing
        }
        if gathersForgets, hasForgotten {
            hasForgotten = false
            usleep(DeviceTransport.gatheringMicroseconds)
            return .nothing
        }
        let start = SystemClock.nanoseconds()
        let outcome =
            share.spinningDevice >= 0
            ? share.alone.whileAtDevice(number) { receive(share.device) } : pollAndReceive()
        // Would a spin have caught it?
        if case .request = outcome,
            SystemClock.nanoseconds() &- start < DeviceTransport.spinNanoseconds
        {
            credit = min(credit &+ 2, DeviceTransport.highestCredit)
        }
        return outcome
    }

    /// poll(2) wakes every thread that polls. So one worker polls, and the others wait for the
    /// mutex.
    private func pollAndReceive() -> Outcome {
        share.pollMutex.withLock { _ in
            if share.alone.isServedByOther(than: number) { return }
            share.alone.whileAtDevice(number) {
                var entry = pollfd(fd: share.device, events: Int16(POLLIN), revents: 0)
                _ = ward_poll(&entry, 1, -1)
            }
        }
        return share.alone.isServedByOther(than: number) ? .nothing : receive(share.device)
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
