import CWardLinux
import Glibc
import Synchronization
import WardSystem

/// Has the store take removed files apart on a thread of its own (decision 0072).
///
/// With the last name of a file the store writes down that it is gone, and then frees its blocks
/// and its inode, which takes as long again, and longer for a large one. It does that with the last
/// descriptor: one is held from before the name goes until after the program has its answer. A
/// power cut in between leaves what the store's own list of such files is for.
///
/// That is for who removes one file after the other. One alone is taken apart where it is removed:
/// after a sync that would be more for the next one to write.
///
/// Concurrency: any thread.
final class RemovedFiles: Sendable {
    /// Held at once: what comes meanwhile is taken apart by whoever removes it. Bytes as the store
    /// counts them.
    static let mostFiles = 64
    static let mostBytes = 64 << 20
    /// Of these the thread is woken, if it waits for more.
    private static let together = 4
    /// How long it waits for more before it sleeps, each time and in all.
    private static let waitNanoseconds = 1_000_000
    private static let waits = 4
    /// And after so long it ends.
    private static let sleepNanoseconds = 60_000_000_000
    /// One that was removed so soon after another one, nanoseconds, and without a sync in between,
    /// may be followed by more.
    static let togetherNanoseconds: UInt64 = 10_000_000

    /// Of a file that is about to lose its last name.
    struct Held: Sendable {
        fileprivate let descriptor: Int32
        fileprivate let bytes: Int
        /// Counted: a later one has a higher number.
        fileprivate let number: UInt64
    }

    private struct State {
        var waiting: [Held] = []
        /// The numbers of those that are not taken apart yet.
        var held: [UInt64] = []
        var newest: UInt64 = 0
        var hasThread = false
        var isAsleep = false
    }

    private let storage: any Storage
    private let isUseful: Bool
    /// How long who needs the space waits for it at most.
    private let patience: Duration
    private let state: Mutex<State>
    private let word = FutexWord()
    /// Those that are not taken apart yet.
    private let files = Atomic<Int>(0)
    private let bytes = Atomic<Int>(0)
    /// When the last one was removed, nanoseconds of the store's clock; 0: there was a sync since.
    private let last = Atomic<UInt64>(0)

    /// Does nothing where it is of no use.
    init(_ storage: any Storage, isUseful: Bool, patience: Duration = .seconds(1)) {
        self.storage = storage
        self.isUseful = isUseful
        self.patience = patience
        var state = State()
        state.waiting.reserveCapacity(RemovedFiles.mostFiles)
        state.held.reserveCapacity(RemovedFiles.mostFiles)
        self.state = Mutex(state)
    }

    /// Before the name goes: nil where the store is to take the file apart with that. To be given
    /// back, whatever becomes of the name.
    func hold(_ status: FileStatus, _ directory: Int32, _ stored: UnsafePointer<CChar>) -> Held? {
        guard isUseful, status.st_nlink == 1, status.st_mode & S_IFMT == S_IFREG else {
            return nil
        }
        let size = Int(clamping: status.st_blocks) &* 512
        let now = storage.nanoseconds()
        let before = last.exchange(now, ordering: .relaxed)
        guard now &- before < RemovedFiles.togetherNanoseconds,
            files.load(ordering: .relaxed) < RemovedFiles.mostFiles,
            bytes.load(ordering: .relaxed) &+ size <= RemovedFiles.mostBytes,
            let descriptor = try? storage.openPlace(directory, stored)
        else { return nil }
        files.add(1, ordering: .sequentiallyConsistent)
        bytes.add(size, ordering: .relaxed)
        let number = state.withLock { state in
            state.newest += 1
            state.held.append(state.newest)
            return state.newest
        }
        return Held(descriptor: descriptor, bytes: size, number: number)
    }

    /// Something is being synced.
    @inline(__always)
    func noteSync() { last.store(0, ordering: .relaxed) }

    /// Afterwards.
    func giveBack(_ held: Held?) {
        guard let held else { return }
        let (isFirst, wakes) = state.withLock { state in
            state.waiting.append(held)
            defer {
                state.hasThread = true
                state.isAsleep = false
            }
            let isDue = state.waiting.count % RemovedFiles.together == 0
            return (!state.hasThread, state.isAsleep || isDue)
        }
        if isFirst {
            startThread()
        } else if wakes {
            wake()
        }
    }

    private func startThread() {
        do throws(Errno) {
            try SystemThread("ward-removed", stackBytes: 256 << 10) { self.work() }.detach()
        } catch {
            // None to be had: here, then.
            var taken: [Held] = []
            state.withLock { state in
                swap(&state.waiting, &taken)
                state.hasThread = false
            }
            takeApart(taken)
        }
    }

    private func wake() {
        word.increment()
        word.wakeAll()
    }

    private func takeApart(_ some: [Held]) {
        for held in some {
            storage.close(held.descriptor)
            bytes.subtract(held.bytes, ordering: .relaxed)
            files.subtract(1, ordering: .sequentiallyConsistent)
            // Last: who waits for it finds it counted no more.
            state.withLock { $0.held.removeAll { $0 == held.number } }
        }
    }

    private func work() {
        var taken: [Held] = []
        taken.reserveCapacity(RemovedFiles.mostFiles)
        var inVain = 0
        while true {
            let now = word.value
            let isOver = state.withLock { state in
                swap(&state.waiting, &taken)
                guard taken.isEmpty else { return false }
                state.isAsleep = inVain >= RemovedFiles.waits
                state.hasThread = inVain <= RemovedFiles.waits
                return !state.hasThread
            }
            if isOver { return }
            if taken.isEmpty {
                let isAsleep = inVain >= RemovedFiles.waits
                inVain += 1
                word.wait(
                    while: now,
                    nanoseconds: isAsleep
                        ? RemovedFiles.sleepNanoseconds : RemovedFiles.waitNanoseconds)
            } else {
                inVain = 0
                takeApart(taken)
                taken.removeAll(keepingCapacity: true)
            }
        }
    }

    /// Some are not taken apart yet.
    @inline(__always)
    var isBusy: Bool { files.load(ordering: .sequentiallyConsistent) > 0 }

    /// The number of the one that was held last.
    var newest: UInt64 { state.withLock { $0.newest } }

    /// Waits until none is left of those up to that number; without one, of those that are held
    /// now. False: `patience` was over.
    @discardableResult
    func finish(upTo number: UInt64? = nil) -> Bool {
        guard isBusy else { return true }
        let deadline = SystemClock.monotonic() + patience
        let last = number ?? newest
        wake()
        while state.withLock({ state in state.held.contains { $0 <= last } }) {
            guard SystemClock.monotonic() < deadline else { return false }
            usleep(100)
        }
        return true
    }

    /// Runs `body`, and once more where it failed for want of space (`ENOSPC`, `EDQUOT`) that
    /// removed files may still have had. `willWait`: called before that is waited for.
    @inline(__always)
    func withSpace(
        willWait: () -> Void, _ body: () throws(Errno) -> Void
    ) throws(Errno) {
        let wasBusy = isBusy
        do throws(Errno) {
            try body()
        } catch {
            let isFull = error == .noSpace || error == .diskQuotaExceeded
            guard isFull, wasBusy || isBusy else { throw error }
            willWait()
            finish()
            try body()
        }
    }
}
