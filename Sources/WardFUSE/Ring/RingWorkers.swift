import CWardLinux
import Glibc
import Synchronization
import WardSystem
import WardVolume

/// The threads that serve a connection by FUSE over io_uring: some for the queue of each CPU, which
/// run there.
///
/// The kernel gives a request to the worker of its queue that waited last. So the others sleep
/// until that one waits for a disk. If the last waiting worker is about to wait for a disk, or all
/// do, another one is started. CPUs that may come online later have queues, too, without requests
/// until then: one thread takes many of them.
final class RingWorkers: @unchecked Sendable {
    // Sendable: all mutable state is behind the mutex.

    /// The first workers of each CPU that is online.
    static let firstWorkers = 2
    static let mostWorkers = 8
    /// Bytes that one worker takes, with its stack and its context.
    private static let workerBytes = 6 << 20

    /// Prepares what a worker needs beside its transport, before the kernel knows that worker. The
    /// returned closure serves until there are no more requests. Throws `ENOMEM`.
    typealias Work =
        @Sendable (RingTransport, _ willSync: @escaping () -> Void) throws(Errno) -> () -> Void

    private struct State {
        var threads: [SystemThread] = []
        var workers: [RingWorker] = []
        /// Workers by queue, with those that could not be started, so that ward does not try for
        /// ever.
        var counts: [Int]
        var isEnding = false
        var watch: RingWatch?
        var watchThread: SystemThread?
    }

    private let share: RingShare
    private let work: Work
    private let state: Mutex<State>

    /// `queues`: the number of CPUs that the machine may have.
    init(device: Int32, queues: Int, rules: ServingRules, work: @escaping Work) {
        share = RingShare(device: device, queues: queues, rules: rules)
        self.work = work
        state = Mutex(State(counts: [Int](repeating: 0, count: queues)))
    }

    /// Starts the workers that must be there before the kernel uses the rings. False where one
    /// can't be started: then no worker is left.
    func start(_ cpus: CPUs) -> Bool {
        for cpu in cpus.online where !add(queues: [cpu]) { return giveUp() }
        var rest = cpus.offline[...]
        while !rest.isEmpty {
            guard add(queues: Array(rest.prefix(Int(WARD_RING_MOST_ENTRIES)))) else {
                return giveUp()
            }
            rest = rest.dropFirst(Int(WARD_RING_MOST_ENTRIES))
        }
        for cpu in cpus.online {
            for _ in 1..<RingWorkers.firstWorkers { _ = add(queues: [cpu]) }
        }
        startWatch()
        return true
    }

    /// Returns when the kernel has ended the connection. To be called after `start`.
    func join() {
        joinWorkers()
        let (watch, thread) = state.withLock { ($0.watch, $0.watchThread) }
        watch?.end()
        thread?.join()
        // The watch may have started workers meanwhile.
        joinWorkers()
    }

    private func joinWorkers() {
        while let thread = state.withLock({ $0.threads.popLast() }) { thread.join() }
    }

    /// Starts the watch. Without a thread for it buffers keep their content until the next lock, no
    /// worker replaces one that hangs, and no worker yields.
    private func startWatch() {
        let watch = RingWatch(
            share, workers: { [unowned self] in state.withLock { $0.workers } },
            needOthers: { [unowned self] in needOthers($0) })
        let thread = try? SystemThread("ward-ring-watch") { watch.run() }
        state.withLock {
            $0.watch = watch
            $0.watchThread = thread
        }
        if thread != nil, share.rules.contains(.yield), Yielding.isPossible() {
            share.mayYield.store(true, ordering: .sequentiallyConsistent)
        }
    }

    private func giveUp() -> Bool {
        share.isDeclined.store(true, ordering: .sequentiallyConsistent)
        let workers = state.withLock { state in
            state.isEnding = true
            return state.workers
        }
        for worker in workers { worker.wipeProgress.interrupt() }
        joinWorkers()
        return false
    }

    // MARK: Workers

    /// Adds a worker; false where the kernel or the machine refuses.
    private func add(queues: [UInt16]) -> Bool {
        let worker = RingWorker(queues: queues)
        let start = WorkerStart()
        let isStarted = state.withLock { state in
            for queue in queues { state.counts[Int(queue)] += 1 }
            guard !state.isEnding,
                let thread = try? SystemThread(
                    "ward-ring-\(queues[0])", { self.serve(worker, start) })
            else { return false }
            state.threads.append(thread)
            return true
        }
        return isStarted && start.wait()
    }

    private func serve(_ worker: RingWorker, _ start: WorkerStart) {
        worker.wipeProgress.begin()
        defer { worker.wipeProgress.end() }
        worker.thread.store(ward_gettid(), ordering: .relaxed)
        let placement =
            worker.queues.count == 1
            ? RingPlacement(cpu: worker.queues[0]) : nil
        do throws(Errno) {
            let transport = try RingTransport(share, worker, placement)
            let serveRequests = try work(transport) { [unowned self, unowned transport] in
                for queue in worker.queues
                where share.queues[Int(queue)].idle.load(ordering: .relaxed) == 0 {
                    // Starting a worker takes the mutex, for which other threads wait, the watch
                    // among them.
                    transport.beOrdinary()
                    needOthers(queue)
                }
            }
            state.withLock { $0.workers.append(worker) }
            defer { state.withLock { $0.workers.removeAll { $0 === worker } } }
            try transport.register()
            start.report(true)
            serveRequests()
        } catch {
            // If memory was short the worker is not counted, so that ward tries again later.
            if error == .noMemory {
                state.withLock { for queue in worker.queues { $0.counts[Int(queue)] -= 1 } }
            }
            start.report(false)
        }
    }

    /// Starts a worker for the queue: none waits for its requests any more, or the last one is
    /// about to stop waiting.
    private func needOthers(_ queue: UInt16) {
        guard state.withLock({ $0.counts[Int(queue)] }) < RingWorkers.mostWorkers,
            TransferMemory.hasRoom(for: RingWorkers.workerBytes)
        else { return }
        _ = add(queues: [queue])
    }

    // MARK: Wiping

    /// As `FUSEConnection.wipeRequestBuffers`.
    func wipeBuffers(until deadline: Duration) -> Bool {
        let demand = share.wipeDemand.add(1, ordering: .sequentiallyConsistent).newValue
        let all = state.withLock { $0.workers }
        return WipeProgress.await(all.map(\.wipeProgress), demand, until: deadline)
    }

    /// As `FUSEConnection.stopYielding`.
    func stopYielding() {
        share.notBefore.max(
            SystemClock.nanoseconds() &+ Yielding.pauseAtLockNanoseconds,
            ordering: .sequentiallyConsistent)
        for worker in state.withLock({ $0.workers }) { worker.stopYielding() }
    }
}

/// The CPUs of this machine, `/sys/devices/system/cpu` (Documentation/admin-guide/cputopology.rst).
struct CPUs: Equatable {
    let online: [UInt16]
    /// CPUs that may come online while the machine runs.
    let offline: [UInt16]

    /// Reads the CPUs. Nil where the kernel does not tell, or has more than the protocol can count.
    static func read(from directory: String = "/sys/devices/system/cpu") -> CPUs? {
        func list(_ name: String) -> [UInt16]? {
            guard let file = try? OwnedDescriptor(opening: "\(directory)/\(name)", O_RDONLY) else {
                return nil
            }
            var text = [UInt8](repeating: 0, count: 4096)
            guard let count = try? Syscall.read(file.rawValue, &text, text.count) else {
                return nil
            }
            return parse(String(decoding: text.prefix(count), as: UTF8.self))
        }
        guard let online = list("online"), let possible = list("possible"), !online.isEmpty,
            // Queues are numbered from 0 without a gap.
            possible == (0..<UInt16(clamping: possible.count)).map({ $0 })
        else { return nil }
        return CPUs(online: online, offline: possible.filter { !online.contains($0) })
    }

    var count: Int { online.count + offline.count }

    /// The numbers of a list such as "0-3,8", or nil.
    static func parse(_ text: String) -> [UInt16]? {
        var all: [UInt16] = []
        for part in text.split(whereSeparator: { $0 == "," || $0 == "\n" }) {
            let ends = part.split(separator: "-", omittingEmptySubsequences: false).map {
                UInt16($0)
            }
            switch ends.count {
            case 1:
                guard let only = ends[0] else { return nil }
                all.append(only)
            case 2:
                guard let first = ends[0], let last = ends[1], first <= last, last < .max else {
                    return nil
                }
                all += first...last
            default: return nil
            }
        }
        return all
    }
}
