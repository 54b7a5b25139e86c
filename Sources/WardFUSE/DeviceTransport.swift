import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// What the worker threads of one connection share.
final class DeviceShare: Sendable {
    /// Blocking reads: the kernel wakes one sleeper for each request.
    let device: Int32
    /// Non-blocking reads, a clone of `device`; -1 where this user may not open `/dev/fuse` to make
    /// one. Then `device` itself is non-blocking, and one thread at a time polls it for all.
    let spinningDevice: Int32
    /// The number of threads spinning: more than one only steals time from the program that is
    /// waited for.
    let spinners = Atomic<Int>(0)
    /// Goes up with each demand to wipe request buffers.
    let wipeDemand = Atomic<UInt64>(0)
    let pollMutex = Mutex<Void>(())
    let alone: LoneServing
    /// Of every worker, before it has served.
    let pace: ServingPace
    /// CPUs of this machine.
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
/// A request that finds a spinning thread costs no wake-up, which is most of the price of a small
/// one (measured: 1.7 times the requests). Spinning is for the worker that just served one, for
/// some 50 µs, and only while it pays: each vain spin lowers `credit`, each request that arrives
/// soon enough raises it, so an idle mount uses no processor time. Nor does it spin where as many
/// programs ask as there are CPUs, which it would take one of, or after a request that took long:
/// what a wake-up costs is little beside that.
///
/// A worker that has served many requests in a row, each quickly, serves alone (`LoneServing`):
/// others that sleep at the device would be woken for each of them. Where it may, it gives way to
/// the program that asks, and follows it (`ProgramFollowing`): then it need not spin.
///
/// A worker holds the content of no request but the one it serves, and none while it sleeps or
/// waits for a sync.
final class DeviceTransport: RequestTransport {
    private static let spinNanoseconds: UInt64 = 50_000
    private static let highestCredit = 16
    /// How long FORGETs are let come together. One that follows an unlink frees a node, and nobody
    /// waits for that.
    private static let gatheringMicroseconds: UInt32 = 2000
    /// Requests after which whoever still sleeps at the device is sent away again.
    private static let requestsBetweenReminders: UInt32 = 256
    /// A request's header and structure, and whole pages.
    static let bufferBytes = Negotiation.maximumTransferBytes + 4096

    let wipeProgress: WipeProgress
    private let share: DeviceShare
    /// Which of the workers this is.
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
    /// Those of them that a program waited for.
    private var requestsAwaited: UInt32 = 0
    /// Of what is served alone.
    private var mix = RequestMix()
    /// Beside the request that came before this one.
    private var wasAnotherThere = false
    /// Whoever asked for that one, gettid(2).
    private var lastProgram: UInt32 = 0
    private var following = ProgramFollowing()
    private var programs = RecentPrograms()
    /// The request that came last was answered, as far as this worker's pace goes.
    private var wasAnswered = false
    /// A request came since the last sleep.
    private var hasServed = false
    /// The last one that came was FORGET.
    private var hasForgotten = false
    /// In the course of the last request.
    private var hasSynced = false
    /// Called before this worker sleeps or syncs, and on demand: leave nothing of what was served.
    var willSleep: () -> Void = {}

    /// Throws `ENOMEM` where there is no memory for the buffer.
    ///
    /// `maySpin`: whether small requests are to be expected; without, it sleeps for each.
    /// `gathersForgets`: nothing comes that a program waits for, so that after a FORGET more of
    /// them are let come together, and the thread is not woken for each.
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
            // Something took too long, and the others went back to work.
            serveWithOthers()
        } else if pace.needsOthers {
            isAlone = false
            following.end()
            share.alone.end()
        } else {
            share.alone.noteBeat(isServing: false)
        }
    }

    /// After somebody else has ended it that this one served alone.
    private func serveWithOthers() {
        isAlone = false
        pace = share.pace
        following.end()
    }

    /// Before the answer goes out: the program, which goes first, is not what takes long.
    func noteAnswer() {
        guard isAlone, pace.isServing else { return }
        pace.end(SystemClock.nanoseconds())
        wasAnswered = true
        // Where it took too long another one may serve alone by now.
        if share.alone.isServed(by: number) { share.alone.noteBeat(isServing: false) }
    }

    private func noteRequest(_ request: Request, _ hadWaited: Bool) {
        let header = request.header
        var hadWaited = hadWaited
        let now = SystemClock.nanoseconds()
        programs.note(header.pid, at: now)
        // While nothing came the watch has ended it.
        if isAlone, !share.alone.isServed(by: number) { serveWithOthers() }
        if isAlone {
            // To one that is followed a request comes when the program is let wait for it, whoever
            // looks: what had waited was there beside the one before.
            let wasFollowing = following.isOn
            let hadCompany = noteCompany(header)
            if wasFollowing { hadWaited = hadCompany }
        }
        // Of two programs one is served while the other one computes.
        if programs.takesTurns { hadWaited = false }
        // Following the program is not part of serving it.
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

    /// Follows the program while requests come one after the other. Whether this one was there
    /// beside the one before.
    private func noteCompany(_ header: fuse_in_header) -> Bool {
        guard share.alone.mayGiveWay.load(ordering: .relaxed) else {
            following.end()
            return false
        }
        let hadCompany = wasAnotherThere
        switch fuse_opcode(rawValue: header.opcode) {
        case FUSE_RELEASE, FUSE_RELEASEDIR, FUSE_FORGET, FUSE_BATCH_FORGET, FUSE_INTERRUPT:
            // Nobody waits for them.
            wasAnotherThere = false
            return false
        default: break
        }
        let wasSerial = mix.isSerial
        // One program may have more of them there: that is for the pace to judge.
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

    /// Beside the request that has come, or is being served.
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
            // Whatever this one waits for, it waits with its own content alone.
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

    /// What the protocol does not foresee is waited out, but not for ever: a daemon that serves
    /// nothing had better end.
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
        // A demand made meanwhile is met when this worker comes round again.
        defer { wipeProgress.met.store(wipesMet, ordering: .sequentiallyConsistent) }
        if share.alone.isServedByOther(than: number) {
            share.alone.rest(number) { isAnotherThere() }
            // How it kept up before says nothing any more.
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

    /// poll(2) wakes everybody who waits, so only one does; the others queue behind it.
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

    /// Within a request of which nothing in the buffer is needed any more, before it waits for a
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
