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
    /// The tag and the result of the next completion.
    private var tag: UInt64 = 0
    private var result: Int32 = 0
    private var wipesMet: UInt64 = 0
    /// The buffers may hold content of requests.
    private var hasServed = false
    private var isServing = false
    /// When the current READ came, monotonic; 0: it is no READ, or requests do not come one after
    /// the other.
    private var readArrival: UInt64 = 0
    /// How long the READ took that was just answered, nanoseconds.
    private var readTook: UInt64 = 0
    /// When the current request came, monotonic, if its program just moved to this CPU; else 0.
    private var arrival: UInt64 = 0
    /// The negative errno of an answer that the protocol does not foresee, or 0.
    private(set) var strangeResult: Int32 = 0
    /// The current request is counted in its queue.
    private var isCounted = false
    private var mix = RequestMix()
    /// Where this worker runs; nil: the scheduler decides.
    private var placement: RingPlacement?
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
        if ward_ring_peek(&ring, 0, &tag, &result) == 1, result != 0 {
            throw Errno(rawValue: 0 &- result)
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
            guard ward_ring_next(&ring, &tag, &result) == 1 else {
                wait()
                continue
            }
            guard result == 0 else {
                liveEntries -= 1
                noteEnd(result)
                continue
            }
            current = Int(tag)
            beginRequest()
            guard let request = entries[current].takeRequest() else {
                endRequest()
                continue
            }
            placement?.follow(readBytes: entries[current].readBytes)
            noteCompany(request.header.opcode)
            readArrival =
                mix.isSerial && entries[current].readBytes > 0 ? SystemClock.nanoseconds() : 0
            let hasMoved = share.settling.hasMoved(
                request.header.pid, to: entries[current].queue)
            let staysAwake = hasMoved && !worker.givesWay.load(ordering: .relaxed)
            arrival = staysAwake ? SystemClock.nanoseconds() : 0
            return (request, RingChannel(transport: self, index: current))
        }
        beOrdinary()
        return nil
    }

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
        if readTook != 0 {
            placement?.noteRead(tookNanoseconds: readTook)
            readTook = 0
        }
    }

    // MARK: Giving way

    /// Counts the request that came, and makes this worker yield while requests come one after the
    /// other.
    @inline(__always)
    private func noteCompany(_ opcode: UInt32) {
        guard opcode != FUSE_RELEASE.rawValue, opcode != FUSE_RELEASEDIR.rawValue else { return }
        let others = share.queues[Int(entries[current].queue)].serving
            .add(1, ordering: .relaxed).oldValue
        isCounted = true
        mix.note(isShared: others > 0)
        guard share.mayGiveWay.load(ordering: .relaxed) else { return }
        let givesWay = worker.givesWay.load(ordering: .relaxed)
        if mix.isSerial != givesWay { giveWay(!givesWay) }
    }

    private func giveWay(_ yes: Bool) {
        if yes {
            let from = share.mayGiveWayFrom.load(ordering: .relaxed)
            guard SystemClock.coarseNanoseconds() >= from else { return }
        }
        guard ward_give_way(yes ? 1 : 0) == 0 else { return }
        worker.givesWay.store(yes, ordering: .sequentiallyConsistent)
    }

    /// Called before this worker rests, ends, or holds what other threads wait for.
    func beOrdinary() {
        mix = RequestMix()
        if ward_gives_way() != 0 { giveWay(false) }
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
        if readArrival != 0 {
            // The time is taken before the program is woken, which then runs first.
            readTook = SystemClock.nanoseconds() &- readArrival
            readArrival = 0
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
        if arrival != 0 {
            let taken = SystemClock.nanoseconds() &- arrival
            arrival = 0
            if taken < Settling.longestServiceNanoseconds, comesWhileAwake() { return }
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

    private func comesWhileAwake() -> Bool {
        let start = SystemClock.nanoseconds()
        repeat {
            sched_yield()
            _ = ward_ring_look(&ring)
            if ward_ring_peek(&ring, 0, &tag, &result) == 1 { return true }
        } while SystemClock.nanoseconds() &- start < Settling.awakeNanoseconds
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
        var tag: UInt64 = 0
        var result: Int32 = 0
        while ward_ring_peek(&ring, number, &tag, &result) == 1 {
            if tag == UInt64(index) { return result == 0 }
            number += 1
        }
        return false
    }
}

/// The channel for the reply to a request in an entry of a ring. Used by that ring's thread.
struct RingChannel: ReplyChannel, @unchecked Sendable {
    // Sendable: never handed to another thread, as a worker with a ring does everything itself.
    private unowned(unsafe) let transport: RingTransport
    private let index: Int

    init(transport: RingTransport, index: Int) {
        self.transport = transport
        self.index = index
    }

    @inline(__always)
    func send(_ message: UnsafeRawBufferPointer) -> Bool {
        let headBytes = MemoryLayout<fuse_out_header>.size
        transport.answer(
            index, message.loadUnaligned(as: fuse_out_header.self),
            UnsafeRawBufferPointer(rebasing: message.dropFirst(headBytes)))
        return true
    }

    @inline(__always)
    func send(_ head: UnsafeRawBufferPointer, _ payload: UnsafeRawBufferPointer) -> Bool {
        transport.answer(index, head.loadUnaligned(as: fuse_out_header.self), payload)
        return true
    }

    var contentTarget: UnsafeMutableRawPointer? { transport.contentTarget(index) }

    static var isForAnyThread: Bool { false }

    var hasCompany: Bool { transport.hasCompany }
}
