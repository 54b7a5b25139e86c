import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Requests by FUSE over io_uring (fs/fuse/dev_uring.c). The kernel copies a request right into a
/// buffer of its worker, on the CPU of the program that asks. One system call brings an answer to
/// the kernel, and one fetches the next request.
///
/// A ring belongs to one worker. A worker takes one request at a time, and answers it before it
/// asks for the next. So it waits for disks on the spot, and other workers of the queue go on.
///
/// A reply goes to the kernel within `send`, not together with the wait for the next request, which
/// would save a system call. A lock waits for this worker until `send` returns. Content that
/// reached the kernel's pages later would outlive the lock.
///
/// While a worker serves a request its buffers hold no content of others. While it waits for the
/// next they keep the last one's for a moment only (`RingWatch`), and a lock does not wait for that
/// (`WipeProgress`).
final class RingTransport: RequestTransport {
    private let worker: RingWorker
    private let share: RingShare
    private var ring = ward_ring()
    private var entries: [RingEntry] = []
    /// Entries that the kernel may still use.
    private var liveEntries = 0
    /// The entry of the last request.
    private var current = 0
    private var completion = RingCompletion()
    private var wipesMet: UInt64 = 0
    /// The buffers may hold content of requests.
    private var hasServed = false
    private var isServing = false
    /// The negative errno of an answer that the protocol does not foresee, or 0.
    private(set) var strangeResult: Int32 = 0
    /// The current request is counted in its queue.
    private var isCounted = false
    private var policy: ServingPolicy
    /// Where this worker runs; nil: the scheduler decides.
    private let placement: RingPlacement?
    /// Called before this worker rests, and on demand: wipes the rest of what the worker served.
    var willRest: () -> Void = {}

    /// To be called on the thread that will use the ring. `placement`: where that thread runs.
    /// Throws the errors of ward_ring_open, and `ENOMEM`.
    init(
        _ share: RingShare, _ worker: RingWorker, _ placement: RingPlacement? = nil
    ) throws(Errno) {
        self.share = share
        self.worker = worker
        self.placement = placement
        policy = ServingPolicy(rules: share.rules, machine: share.machine)
        if placement != nil { _ = policy.decide(.ringBound) }
        for queue in worker.queues { entries.append(try RingEntry(queue: queue)) }
        let result = ward_ring_open(&ring, UInt32(entries.count))
        guard result == 0 else { throw Errno(rawValue: 0 &- result) }
    }

    deinit {
        ward_ring_close(&ring)
        for index in entries.indices {
            entries[index].wipe()
            entries[index].unmap()
        }
    }

    /// Offers the entries to the kernel: from now on requests come. Throws the kernel's refusal.
    func register() throws(Errno) {
        for (index, entry) in entries.enumerated() {
            var buffers = entry.buffers
            let result = withUnsafeBytes(of: &buffers) { bytes in
                let vector = bytes.baseAddress!.assumingMemoryBound(to: iovec.self)
                let result = ward_ring_register(
                    &ring, share.device, entry.queue, vector, UInt64(index))
                return result == 0 ? ward_ring_submit(&ring) : result
            }
            guard result == 0 else { throw Errno(rawValue: 0 &- result) }
            liveEntries += 1
        }
        // A refusal completes at once, a request later.
        _ = ward_ring_look(&ring)
        if completion.peek(&ring), completion.result != 0 {
            throw Errno(rawValue: 0 &- completion.result)
        }
    }

    /// Checks whether this process may use rings: a container or the system (`io_uring_disabled`)
    /// may forbid it.
    static func check() throws(Errno) {
        var ring = ward_ring()
        let result = ward_ring_open(&ring, 1)
        guard result == 0 else { throw Errno(rawValue: 0 &- result) }
        ward_ring_close(&ring)
    }

    // MARK: Requests

    func nextRequest() -> (request: Request, channel: RingChannel)? {
        endRequest()
        while liveEntries > 0, !share.isDeclined.load(ordering: .relaxed) {
            if share.wipeDemand.load(ordering: .relaxed) != wipesMet { meetWipeDemand() }
            guard completion.take(&ring) else {
                wait()
                continue
            }
            guard completion.result == 0 else {
                liveEntries -= 1
                noteEnd(completion.result)
                continue
            }
            current = Int(completion.tag)
            beginRequest()
            guard let request = entries[current].takeRequest() else {
                endRequest()
                continue
            }
            noteRequest(request)
            return (request, RingChannel(transport: self, index: current))
        }
        beOrdinary()
        return nil
    }

    private func noteRequest(_ request: Request) {
        place(policy.decide(.ringRequestCame(readBytes: entries[current].readBytes)))
        noteCompany(request.header.opcode)
        let hasMoved = share.recentQueues.hasMoved(
            request.header.pid, to: entries[current].queue)
        let decision = policy.decide(
            .ringServiceBegins(
                hasMoved: hasMoved, yields: worker.yields.load(ordering: .relaxed)))
        if decision == .readClock {
            _ = policy.decide(.clockRead(at: SystemClock.nanoseconds()))
        }
    }

    @inline(__always)
    private func place(_ decision: ServingDecision) { placement?.perform(decision, &policy) }

    private func beginRequest() {
        isServing = true
        worker.beat.store(worker.beat.load(ordering: .relaxed) &+ 1, ordering: .releasing)
        guard !hasServed else { return }
        hasServed = true
        worker.isClean.store(false, ordering: .sequentiallyConsistent)
        share.wakeWatch()
    }

    private func endRequest() {
        guard isServing else { return }
        isServing = false
        answerLeftOver()
        leaveCompany()
        worker.beat.store(worker.beat.load(ordering: .relaxed) &+ 1, ordering: .releasing)
        place(policy.decide(.ringRequestEnded))
    }

    // MARK: Yielding

    /// Counts the request that came, and makes this worker yield while requests come one after the
    /// other.
    @inline(__always)
    private func noteCompany(_ opcode: UInt32) {
        guard opcode != FUSE_RELEASE.rawValue, opcode != FUSE_RELEASEDIR.rawValue else { return }
        let others = share.queues[Int(entries[current].queue)].serving
            .add(1, ordering: .relaxed).oldValue
        isCounted = true
        let decision = policy.decide(
            .companySeen(
                isShared: others > 0, mayYield: share.mayYield.load(ordering: .relaxed),
                yields: worker.yields.load(ordering: .relaxed)))
        switch decision {
        case .startYielding: yield(true)
        case .stopYielding: yield(false)
        default: break
        }
    }

    private func yield(_ yes: Bool) {
        if yes {
            let notBefore = share.notBefore.load(ordering: .relaxed)
            guard SystemClock.coarseNanoseconds() >= notBefore else { return }
        }
        guard ward_give_way(yes ? 1 : 0) == 0 else { return }
        worker.yields.store(yes, ordering: .sequentiallyConsistent)
    }

    /// Called before this worker rests, ends, or holds what other threads wait for.
    func beOrdinary() {
        _ = policy.decide(.stoppedYielding)
        if ward_gives_way() != 0 { yield(false) }
    }

    /// Called before the waiting program has the answer.
    private func leaveCompany() {
        guard isCounted else { return }
        isCounted = false
        share.queues[Int(entries[current].queue)].serving.subtract(1, ordering: .relaxed)
    }

    /// Notes why an entry can't be used any more: a negative errno.
    private func noteEnd(_ result: Int32) {
        switch 0 &- result {
        // Unmounted or aborted; the ring ends; a reply to a request that an abort has ended
        // already.
        case ENOTCONN, ECANCELED, ENOENT, EIO, ECONNABORTED: break
        default: strangeResult = result
        }
    }

    /// Answers a request that could not be read, or got no answer: else the program could not even
    /// be killed.
    private func answerLeftOver() {
        guard entries[current].commitID != 0 else { return }
        answer(
            current,
            fuse_out_header(
                len: UInt32(MemoryLayout<fuse_out_header>.size), error: -EIO,
                unique: entries[current].commitID), UnsafeRawBufferPointer(start: nil, count: 0))
    }

    /// Hands the reply to the kernel, which has it when this returns. Does nothing if the request
    /// is answered already.
    func answer(_ index: Int, _ header: fuse_out_header, _ content: UnsafeRawBufferPointer) {
        let commitID = entries[index].commitID
        guard commitID != 0 else { return }
        entries[index].commitID = 0
        entries[index].putReply(header, content)
        leaveCompany()
        if policy.timesRead {
            // The time is taken before the program is woken, which then runs first.
            _ = policy.decide(.ringAnswered(at: SystemClock.nanoseconds()))
        }
        var result = ward_ring_commit(
            &ring, share.device, entries[index].queue, commitID, UInt64(index))
        if result == 0 { result = ward_ring_submit(&ring) }
        if result != 0 { fail(result) }
    }

    /// Ends the use of the ring, which fails with a negative errno.
    private func fail(_ result: Int32) {
        strangeResult = result
        liveEntries = 0
    }

    /// Whether another worker waits for the requests of this queue, and no lock waits for this one.
    var hasCompany: Bool {
        share.wipeDemand.load(ordering: .relaxed) == wipesMet
            && share.queues[Int(entries[current].queue)].idle.load(ordering: .relaxed) > 0
    }

    func contentTarget(_ index: Int) -> UnsafeMutableRawPointer { entries[index].payload }

    // MARK: Waiting

    private func wait() {
        if policy.mayStayAwake,
            case .stayAwake(let nanoseconds) = policy.decide(
                .ringIsEmpty(at: SystemClock.nanoseconds())),
            comesWhileAwake(nanoseconds)
        {
            return
        }
        for entry in entries { share.queues[Int(entry.queue)].idle.add(1, ordering: .relaxed) }
        // If the buffers are clean, a wipe that is demanded meanwhile counts as done. This worker
        // sees the demand when it wakes up.
        if !hasServed { worker.wipeProgress.met.store(.max, ordering: .sequentiallyConsistent) }
        var signals = InterruptingSignal.others
        let result = ward_ring_wait(&ring, &signals)
        if !hasServed { worker.wipeProgress.met.store(wipesMet, ordering: .sequentiallyConsistent) }
        for entry in entries { share.queues[Int(entry.queue)].idle.subtract(1, ordering: .relaxed) }
        if result != 0, result != -EINTR { return fail(result) }
        if worker.mustRest.load(ordering: .relaxed) {
            worker.mustRest.store(false, ordering: .relaxed)
            if result != 0 { leaveNothing() }
        }
    }

    private func comesWhileAwake(_ nanoseconds: UInt64) -> Bool {
        let start = SystemClock.nanoseconds()
        repeat {
            sched_yield()
            _ = ward_ring_look(&ring)
            if completion.peek(&ring) { return true }
        } while SystemClock.nanoseconds() &- start < nanoseconds
        return false
    }

    // MARK: Wiping

    private func meetWipeDemand() {
        let demand = share.wipeDemand.load(ordering: .sequentiallyConsistent)
        leaveNothing()
        wipesMet = demand
        worker.wipeProgress.met.store(wipesMet, ordering: .sequentiallyConsistent)
    }

    /// Wipes everything except requests that came. They come only within calls of this thread
    /// (IORING_SETUP_DEFER_TASKRUN), so those that are there now are all.
    private func leaveNothing() {
        // The watch does not look after clean workers, so they must not yield.
        beOrdinary()
        hasServed = false
        for index in entries.indices { entries[index].wipe(keepingRequest: hasCome(index)) }
        willRest()
        worker.isClean.store(true, ordering: .sequentiallyConsistent)
    }

    private func hasCome(_ index: Int) -> Bool {
        var number: UInt32 = 0
        var found = RingCompletion()
        while found.peek(&ring, number) {
            if found.tag == UInt64(index) { return found.result == 0 }
            number += 1
        }
        return false
    }
}
