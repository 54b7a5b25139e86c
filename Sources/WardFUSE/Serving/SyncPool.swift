import CWardLinux
import Glibc
import Synchronization
import WardSystem
import WardVolume

/// A job that takes as long as a disk, or waits for other requests.
struct SyncJob<Channel: ReplyChannel>: Sendable {
    enum Kind: Sendable {
        case file(HandleID, dataOnly: Bool)
        case directory(HandleID, dataOnly: Bool)
        case everything
        /// Makes changes of class durable that had no sync of their own.
        case classes(since: [UInt8])
        /// Changes times, which waits for mapped pages (`Volume.mustWriteBack`).
        case attributes(NodeID, AttributeChange, Caller, CachePolicy)
    }

    let kind: Kind
    let unique: UInt64
    var channel: Channel

    func perform(_ volume: Volume, _ context: WorkerContext) {
        do throws(Errno) {
            try volume.withDescriptors(context) { () throws(Errno) in
                try serve(volume, context)
            }
        } catch {
            channel.complete(unique, error: Wire.errorNumber(error))
        }
        context.finishRequest()
    }

    private func serve(_ volume: Volume, _ context: WorkerContext) throws(Errno) {
        switch kind {
        case .file(let handle, let dataOnly):
            try volume.fsync(handle, dataOnly: dataOnly, context)
        case .directory(let handle, let dataOnly):
            try volume.fsyncDirectory(handle, dataOnly: dataOnly, context)
        case .everything:
            try volume.durablePoint()
        case .classes(let mark):
            try volume.syncClasses(since: mark)
        case .attributes(let node, let change, let caller, let policy):
            volume.writeBack(node)
            let attributes = try volume.setAttributes(
                of: node, handle: nil, change, caller: caller, context)
            return channel.complete(unique, with: fuse_attr_out(attributes, policy))
        }
        channel.complete(unique)
    }
}

/// Threads for `fsync`, so that programs that sync do not hold up programs that don't.
///
/// Up to half of the workers may sync on the spot, which saves a wake-up where the backing store is
/// fast. All other syncs are queued, and so are those of a sole worker that other programs would
/// wait for. Threads start when they are needed, and stay.
final class SyncPool<Channel: ReplyChannel>: @unchecked Sendable {
    // Sendable: `signal` is made for sharing; everything else is constant, atomic or behind the
    // mutex.
    private static var mostThreads: Int { 4 }
    /// Bytes that one thread takes, with its stack and its context.
    private static var threadBytes: Int { 4 << 20 }

    private struct State {
        var queue: [SyncJob<Channel>] = []
        var busyThreads = 0
        var threads: [SystemThread] = []
        /// The number of threads, with those that are being started.
        var reserved = 0
    }

    private let volume: Volume
    /// Sends errors later.
    let delayed: DelayedReplies<Channel>
    private let mostOnTheSpot: Int
    private let onTheSpot = Atomic<Int>(0)
    private let state = Mutex(State())
    /// Counts the jobs, and the end of each thread.
    private let signal = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)

    /// `workers`: the number of threads that serve requests.
    init(_ volume: Volume, workers: Int) {
        self.volume = volume
        delayed = DelayedReplies(volume.refusals)
        mostOnTheSpot = workers / 2
        sem_init(signal, 0, 0)
    }

    /// Makes a pool without threads: each job runs where it is submitted.
    init(onTheSpot volume: Volume) {
        self.volume = volume
        delayed = DelayedReplies(volume.refusals)
        mostOnTheSpot = .max
        sem_init(signal, 0, 0)
    }

    deinit {
        sem_destroy(signal)
        signal.deallocate()
    }

    /// Performs the job, here or on a thread of the pool. The reply is sent from there.
    func submit(_ job: SyncJob<Channel>, _ context: WorkerContext) {
        let count = onTheSpot.add(1, ordering: .relaxed).newValue
        defer { onTheSpot.subtract(1, ordering: .relaxed) }
        if count <= mostOnTheSpot, !job.channel.holdsUpOthers {
            job.perform(volume, context)
        } else if !enqueue(job) {
            // No thread can be started: a slow sync is better than none.
            job.perform(volume, context)
        }
    }

    /// Lets the queue run empty and ends the threads. No job may follow.
    func end() {
        let threads = state.withLock { $0.threads }
        for _ in threads { sem_post(signal) }
        for thread in threads { thread.join() }
        delayed.end()
    }

    private func enqueue(_ job: SyncJob<Channel>) -> Bool {
        if let number = reserve() { start(number) }
        let isQueued = state.withLock { state in
            guard !state.threads.isEmpty else { return false }
            var elsewhere = job
            elsewhere.channel = job.channel.elsewhere
            state.queue.append(elsewhere)
            return true
        }
        if isQueued { sem_post(signal) }
        return isQueued
    }

    /// Reserves the number of a thread to start. Nil where the threads suffice, or memory does not.
    private func reserve() -> Int? {
        state.withLock { state in
            guard state.reserved - state.busyThreads <= state.queue.count,
                state.reserved < SyncPool.mostThreads,
                TransferMemory.hasRoom(for: SyncPool.threadBytes)
            else { return nil }
            state.reserved += 1
            return state.reserved
        }
    }

    private func start(_ number: Int) {
        let context = try? WorkerContext(allocatingFor: volume)
        let thread = context.flatMap { context in
            try? SystemThread("ward-fsync-\(number)") { self.work(context) }
        }
        state.withLock { state in
            if let thread {
                state.threads.append(thread)
            } else {
                state.reserved -= 1
            }
        }
    }

    private func work(_ context: WorkerContext) {
        while true {
            while sem_wait(signal) != 0 {}
            let job: SyncJob<Channel>? = state.withLock { state in
                guard !state.queue.isEmpty else { return nil }
                state.busyThreads += 1
                return state.queue.removeFirst()
            }
            guard let job else { return }
            job.perform(volume, context)
            context.scrub()
            state.withLock { $0.busyThreads -= 1 }
        }
    }
}
